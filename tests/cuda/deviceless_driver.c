// deviceless_driver.c: a libcuda.so.1 without a device, for asking cuDNN what it supports (test_dnn_support.c).
//
// cuDNN's run-time engines need a driver even to be checked, and load what they compiled when a plan is finished. The
// toolkit's own stub refuses to load it. Here loading succeeds, so that such a plan can be finished. Only functions
// that cuDNN 9 looks up are here. cuDNN prints the name of one that it misses.
typedef int answer;
enum { SUCCESS = 0, NO_DEVICE = 100 };
static long something[8];

answer cuInit(unsigned flags) {
    return NO_DEVICE;
}
answer cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}
answer cuDeviceGetCount(int *n) {
    *n = 0;
    return NO_DEVICE;
}
answer cuGetErrorString(answer e, const char **text) {
    *text = "no device";
    return SUCCESS;
}
answer cuGetErrorName(answer e, const char **text) {
    return cuGetErrorString(e, text);
}
answer cuLibraryLoadData(void **library) {
    *library = something;
    return SUCCESS;
}
answer cuLibraryGetKernel(void **kernel) {
    *kernel = something;
    return SUCCESS;
}
answer cuLibraryUnload(void *library) {
    return SUCCESS;
}

// Functions that must exist, but are never called without a device.
#define ABSENT(name)                                                                                                   \
    answer name(void) {                                                                                                \
        return NO_DEVICE;                                                                                              \
    }
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetDevice)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetAttribute)
ABSENT(cuDevicePrimaryCtxRelease)
ABSENT(cuDevicePrimaryCtxReset)
ABSENT(cuDevicePrimaryCtxRetain)
ABSENT(cuFuncGetAttribute)
ABSENT(cuFuncSetAttribute)
ABSENT(cuKernelGetAttribute)
ABSENT(cuKernelSetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkAddFile_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkDestroy)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuModuleLoadData)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleLoadFatBinary)
ABSENT(cuModuleUnload)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)
ABSENT(cuStreamSynchronize)
ABSENT(cuTensorMapEncodeTiled)
