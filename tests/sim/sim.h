// sim.h: a whole job in one process, on a clock, a disk and a network that are simulated and driven by a seed.
//
// Ranks are threads that run the real trainer. Of all threads of the job one runs at a time (sim_threads.c): where a
// thread waits, sleeps, writes or talks, a seeded scheduler says who goes on, and when all wait, the clock jumps. So a
// seed is one exact history. The product is not built differently: this program defines the functions of libc and
// pthreads that it waits and writes with, and the linker puts these first.
//
//   sim_threads.c  threads, mutexes, conditions, sleeping, the clock
//   sim_disk.c     calls that change files: they fail, hang and are recorded. A power cut keeps what was flushed,
//                  and of the rest what the seed says
//   sim_net.c      a comm over delays and partitions; signals
//   sim_job.c      one start of the job: ranks, data, network, and the launcher that ends all when one fails
//   test_sim.c     what is broken when, and what must hold
//
// Each start of the job is a process of its own, so that it ends as a job does: with all its threads at once, wherever
// they are. Files are real ones in memory; what this process and its parent share is in sim_world.
#ifndef DT_TESTS_SIM_H
#define DT_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_RANKS = 4,
    SIM_FAULTS = 3,
    SIM_TEXT = 16 << 10,
    SIM_TIMEOUT_S = 20,                // comm.timeout, and of a file
    SIM_PATIENCE_S = 6 * SIM_TIMEOUT_S // a start that takes so much longer than it should has no deadline
};

// At the `at`-th event of a start (calls that change files, and collectives, are counted).
typedef enum sim_kind {
    SIM_NONE,
    SIM_EIO,       // of a call that changes files: the disk's fault
    SIM_ENOSPC,    // the disk is full for `seconds`
    SIM_SHORT,     // half of a write
    SIM_HANG,      // a call does not return for `seconds`
    SIM_CUT,       // power
    SIM_KILL,      // all ranks
    SIM_KILL_RANK, // one; the launcher ends the others
    SIM_FREEZE,    // a rank stands still for `seconds`
    SIM_PART,      // a rank and the others hear nothing of each other for `seconds`
    SIM_SIGNAL,    // to all ranks
    SIM_BAD_STEP,  // a sample of step `at` is not finite
    SIM_N_KINDS
} sim_kind;
extern const char *const sim_kind_names[SIM_N_KINDS];

typedef struct sim_fault {
    sim_kind kind;
    int64_t at;
    int rank;
    double seconds;   // INFINITY: for ever
    bool fired;       // out
    double fired_s;   // out
    char target[200]; // out: the file
} sim_fault;

// One start of the job: what it is given, and what it told.
typedef struct sim_start {
    uint64_t seed;
    int world_size;
    double limit_s; // virtual: a start that lasts longer is a wait without a deadline
    bool verbose;
    sim_fault faults[SIM_FAULTS];
    bool evaluate; // behind the training: "latest" and "best"
    // out
    bool cut;
    int code; // of the job
    double end_s;
    int64_t n_events, acknowledged; // the newest step
    char violation[1024];           // of the simulation itself: nobody can go on, or too late
    char error[2048];               // of the rank that ended the job
    char text[SIM_TEXT];            // warnings and errors of all ranks
    size_t n_text;
    char evaluations[1024];
} sim_start;
extern sim_start *sim_world; // shared with the parent
extern char sim_root[64];    // the directory that is on the simulated disk

// The function that this program's own stands before; gives `real`.
#define REAL(name)                                                                                                     \
    static __typeof__(&name) real;                                                                                     \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

// ---- sim_threads.c
double sim_now(void);
void sim_seed(uint64_t seed);
uint64_t sim_random(void);
double sim_uniform(double low, double high);
int sim_rank(void); // of this thread; -1: not in the simulation
void sim_sleep(double s);
bool sim_wait(const void *on, double until_s, const char *what); // false: the time has come
void sim_wake(const void *on);
void sim_spawn(int rank, void *(*fn)(void *), void *arg);
void sim_freeze(int rank, double seconds);
int sim_n_lost(void);                             // ranks that are frozen for ever
void sim_bury(int rank);                          // its threads never run again
void sim_end(int code) __attribute__((noreturn)); // the start ends here and now
void sim_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// ---- sim_job.c
// Counts an event and does what is due; a fault of the disk is returned for the caller to do.
sim_fault *sim_event(bool of_disk, const char *what);
void sim_job(void); // runs the start that sim_world describes; never returns
void sim_job_over(int code, const char *why);
void sim_warm_up(const char *dir); // outside the simulation: compiles the kernels once

// ---- sim_disk.c
void sim_disk_share(void);  // makes the journal, shared with processes that this one forks
void sim_disk_settle(void); // everything is on the disk: an orderly shutdown
void sim_disk_cut(uint64_t seed);

// ---- sim_net.c
struct dt_comm;
struct dt_comm *sim_comm_create(int rank, int world_size);
void sim_net_part(int rank, double until_s);
void sim_signal_all(void);

#endif
