// stuck.c: preloaded into ranks by test_stopped_rank.sh: the call that STUCK names does not return once a file exists
// ("MPI_Testsome:FILE"). "handler": the handler of SIGSEGV that is there before dtrain's own, as an MPI library has one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stay(int sig) {
    for (;;) pause();
}

static void visit(const char *call) {
    const char *stuck = getenv("STUCK");
    const size_t length = strlen(call);
    if (stuck && strncmp(stuck, call, length) == 0 && stuck[length] == ':' && access(stuck + length + 1, F_OK) == 0)
        stay(0);
}

__attribute__((constructor)) static void install(void) {
    const char *stuck = getenv("STUCK");
    if (stuck && strcmp(stuck, "handler") == 0) signal(SIGSEGV, stay);
}

int MPI_Testsome(int n, void *requests, int *n_done, int *done, void *statuses);
int MPI_Testsome(int n, void *requests, int *n_done, int *done, void *statuses) {
    int (*real)(int, void *, int *, int *, void *) = dlsym(RTLD_NEXT, "MPI_Testsome");
    visit("MPI_Testsome");
    return real(n, requests, n_done, done, statuses);
}

int MPI_Test(void *request, int *done, void *status);
int MPI_Test(void *request, int *done, void *status) { // only heartbeats call it
    int (*real)(void *, int *, void *) = dlsym(RTLD_NEXT, "MPI_Test");
    visit("MPI_Test");
    return real(request, done, status);
}

int MPI_Abort(void *comm, int code);
int MPI_Abort(void *comm, int code) {
    int (*real)(void *, int) = dlsym(RTLD_NEXT, "MPI_Abort");
    visit("MPI_Abort");
    return real(comm, code);
}

int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    visit("fsync");
    return real(fd);
}
