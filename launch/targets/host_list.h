// host_list.h: the hosts of `dtrain launch hosts`, and what is asked of each before a job starts there.
//
// A host is asked with one command, over ssh or what stands for it, 32 at a time: the folder, dtrain's version, a
// checksum of the config, and the sizes of the data set's files, of a folder the names in it. The first host's answers are what the others are
// compared with. The only shell on the way is the one that sshd starts there; what it reads is quoted in one place.
#ifndef DT_LAUNCH_HOST_LIST_H
#define DT_LAUNCH_HOST_LIST_H

#include "process.h"

#include "base/status.h"
#include "config/config.h"

enum { LAUNCH_AT_ONCE = 32 }; // hosts that are asked

typedef struct dt_cli_host {
    char *name;
    int slots;            // ranks there
    bool local;           // this machine
    bool lost;            // did not answer when it was asked last, or not yet
    dt_cli_process asked; // the question; its answer stays until the next one
} dt_cli_host;

typedef struct dt_cli_hosts {
    dt_cli_host *hosts;
    int n;
    const char *agent;   // "ssh -o …", ahead of HOST COMMAND: words between blanks
    const char *program; // dtrain's path there
} dt_cli_hosts;

// "a:8,b:8", or a file with a line "a:8" or "a slots=8" for each. DT_E_USAGE.
dt_status dt_cli_hosts_parse(dt_cli_hosts *h, const char *list, const char *file);
void dt_cli_hosts_free(dt_cli_hosts *h);
int dt_cli_hosts_ranks(const dt_cli_hosts *h); // of those that are not lost

// Asks every host, or only those that are lost, and returns when the last ones have been asked. Answers may take LAUNCH_REACH_S: dt_cli_hosts_wait.
dt_status dt_cli_hosts_ask(dt_cli_hosts *h, const dt_config *c, const char *config_path, bool only_lost);
// Waits for answers, so long or until all are there (true), and sets `lost`: what has not answered yet is. DT_E_USAGE
// in *judged for a host that answers, but cannot run the job, or runs another one; it is lost, too.
bool dt_cli_hosts_wait(dt_cli_hosts *h, double seconds, dt_status *judged);
// Why a host is lost, as far as it is known: the last line that came. Not ended; *n bytes.
const char *dt_cli_host_reason(const dt_cli_host *host, int *n);
// Runs argv on the host, at most so long: here, or by the agent, in the home folder there. What it writes is
// p->out.text. 0, or an errno.
int dt_cli_host_run(const dt_cli_hosts *h, const dt_cli_host *host, dt_cli_process *p, const char *const *argv,
                    double limit_s);
// Sends long packets to each host and back. The first that does not answer, as text (heap); NULL: all do.
char *dt_cli_hosts_test_links(const dt_cli_hosts *h);
// Subnets ("10.0.0.0/24,…") by which this machine reaches all others. NULL: some are behind a router, or there are
// none. Heap.
char *dt_cli_hosts_subnets(const dt_cli_hosts *h);

#endif
