// kernel_loading.c: see the header.
#include "backend/cuda/kernel_loading.h"

#include <stdio.h>
#include <string.h>

enum { NAMED = 6 };

static const char *const names[] = {
#define CUDA_OWN_KERNEL(name, args) #name,
#include "backend/cuda/cuda_own_kernels.def"
#undef CUDA_OWN_KERNEL
};

typedef struct faults {
    int error; // the first
    int n, n_alike;
    char text[600];
} faults;

// Those that fail as the first one does need no text of their own.
static void note(faults *f, const dt_kernel_loader *l, dt_cuda_kernel k, int error) {
    if (!f->n) f->error = error;
    f->n_alike += error == f->error;
    const size_t at = strlen(f->text);
    if (f->n++ < NAMED)
        snprintf(f->text + at, sizeof f->text - at, "%s%s%s%s%s", at ? ", " : "", names[k],
                 error == f->error ? "" : " (", error == f->error ? "" : l->error_text(error),
                 error == f->error ? "" : ")");
}

static const char *remedy(int error, const dt_cuda_device_info *d, char *text, size_t cap) {
    switch (error) {
    case DT_CUDA_NO_CODE:
        snprintf(text, cap, "build with -DDTRAIN_CUDA_ARCHITECTURES=%d%d", d->major, d->minor);
        return text;
    case DT_CUDA_PTX_TOO_NEW:
    case DT_CUDA_NO_PTX_COMPILER:
        snprintf(text, cap,
                 "the driver (%s) does not compile the module's PTX: update it, or build with "
                 "-DDTRAIN_CUDA_ARCHITECTURES=%d%d-real",
                 d->driver_version[0] ? d->driver_version : "unknown", d->major, d->minor);
        return text;
    case DT_CUDA_OUT_OF_MEMORY:
        return "another program has the device's memory (nvidia-smi lists them)";
    default:
        return "unpack the bundle or build again, all of it; if that does not help, the device is "
               "broken: nvidia-smi and the kernel's log (dmesg, lines with Xid) say more";
    }
}

dt_status dt_cuda_load_kernels(const dt_kernel_loader *l, const dt_cuda_device_info *device) {
    faults f = {0};
    char what[160];
    for (int k = 0; k < DT_K_COUNT; k++) {
        const int error = l->load((dt_cuda_kernel)k);
        if (error) note(&f, l, (dt_cuda_kernel)k, error);
    }
    if (!f.n) return DT_OK;
    if (f.error == DT_CUDA_NO_CODE && f.n_alike == DT_K_COUNT)
        return dt_fail(
            DT_E_USAGE,
            "device.kind: cuda: %s is sm_%d%d, for which this module (dtrain_cuda.so, of "
            "%s) has no code: %s",
            device->name, device->major, device->minor, l->architectures,
            remedy(f.error, device, what, sizeof what));
    char more[40] = "";
    if (f.n > NAMED) snprintf(more, sizeof more, " and %d more", f.n - NAMED);
    return dt_fail(DT_E_USAGE,
                   "device.kind: cuda: %d of the %d kernels of dtrain_cuda.so (of %s) do not load "
                   "on %s, sm_%d%d: %s: %s%s; %s",
                   f.n, (int)DT_K_COUNT, l->architectures, device->name, device->major,
                   device->minor, l->error_text(f.error), f.text, more,
                   remedy(f.error, device, what, sizeof what));
}
