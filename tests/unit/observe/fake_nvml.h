// fake_nvml.h: what the fake NVML reports; of the library a test has the struct by dlsym.
struct fake_nvml {
    unsigned util, mw, celsius, mhz;
    unsigned long long used, total;
    _Atomic int util_error; // of utilization alone; it and those below may change under the sampler
    _Atomic char mode;      // 'h': each call hangs; 'e': each fails
    _Atomic int n_open;     // inits less shutdowns
};
#define FAKE_NVML                                                                                                      \
    { 97, 412500, 61, 1980, 24696061952ull, 150000000000ull, 0, 0, 0 }
