// launcher.h: what mpirun or srun says, in its environment, to each process that it starts.
#ifndef DT_BASE_LAUNCHER_H
#define DT_BASE_LAUNCHER_H

#include <stdbool.h>

// The rank of this process; -1: no launcher that MPI knows (mpirun, srun with PMI) started it.
int dt_launcher_rank(void);
// How many processes the launcher started, with or without PMI; 0: none did, or it does not say.
int dt_launcher_size(void);
// Whether this is the first of the launcher's processes on its host.
bool dt_launcher_is_first_of_host(void);
// Whether this process may start ranks itself: not as one of several, nor under mpirun, which does not nest.
bool dt_launcher_may_start_ranks(void);
// Programs that this one starts from now on are no ranks of its launcher.
void dt_launcher_leave(void);

#endif
