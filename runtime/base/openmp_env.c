// openmp_env.c: libgomp's threads that wait spin for about 50 us, then sleep. By default they spin for milliseconds, and on
// a machine with other work a thread that spins holds the core that the thread it waits for needs: a step then takes ten
// times as long. The library libdtrain_openmp.so of its own: libgomp reads its environment in its constructor, before any
// constructor of the program, so another library's has to run even earlier. The loader runs constructors from the end of the
// link line, hence this library stands behind libgomp there (tests/e2e/test_openmp_env.sh).
#include <stdlib.h>

__attribute__((constructor)) static void bound_spinning(void) {
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "1000", 0); // both are the user's, if one is set
}
