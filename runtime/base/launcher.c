// launcher.c: see launcher.h.
#include "base/launcher.h"

#include <stdlib.h>

static const char *const RANK[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
enum { N_RANK = sizeof RANK / sizeof *RANK };

static int launcher_number(const char *name, int otherwise) {
    const char *v = getenv(name);
    return v && *v ? atoi(v) : otherwise;
}

int dt_launcher_rank(void) {
    int rank = -1;
    for (int i = 0; i < N_RANK && rank < 0; i++) rank = launcher_number(RANK[i], -1);
    return rank;
}

// A Slurm batch script has SLURM_NTASKS as well, for tasks not yet started, so the variable counts only inside a job
// step.
int dt_launcher_size(void) {
    const int n = launcher_number("OMPI_COMM_WORLD_SIZE", launcher_number("PMI_SIZE", 0));
    if (n > 0 || launcher_number("SLURM_PROCID", -1) < 0 || launcher_number("SLURM_STEP_ID", -1) < 0) return n;
    return launcher_number("SLURM_STEP_NUM_TASKS", launcher_number("SLURM_NTASKS", 0));
}

bool dt_launcher_is_first_of_host(void) {
    return launcher_number("OMPI_COMM_WORLD_LOCAL_RANK", launcher_number("SLURM_LOCALID", -1)) == 0;
}

bool dt_launcher_may_start_ranks(void) {
    return dt_launcher_size() < 2 && launcher_number("OMPI_COMM_WORLD_SIZE", 0) == 0;
}

void dt_launcher_leave(void) {
    for (int i = 0; i < N_RANK; i++) unsetenv(RANK[i]);
}
