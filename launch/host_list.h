// host_list.h: the hosts of `dtrain launch hosts`, and what is asked of each before a job starts there.
//
// A host is asked with one command, over ssh or what stands for it, all at once: the folder, dtrain's version, a checksum
// of the config and the sizes of the data set's files. The first host's answers are what the others are compared with.
#ifndef DT_LAUNCH_HOST_LIST_H
#define DT_LAUNCH_HOST_LIST_H

#include "base/status.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct launch_host {
    char *name;
    int slots;  // ranks there
    bool local; // this machine
    bool lost;  // did not answer when it was asked last
    char *answer;
    FILE *asked;
} launch_host;

typedef struct launch_hosts {
    launch_host *hosts;
    int n;
    const char *agent;   // "ssh -o …", ahead of HOST COMMAND
    const char *program; // dtrain's path there
} launch_hosts;

// "a:8,b:8", or a file with a line "a:8" or "a slots=8" for each. DT_E_USAGE.
dt_status launch_hosts_parse(launch_hosts *h, const char *list, const char *file);
void launch_hosts_free(launch_hosts *h);
int launch_hosts_ranks(const launch_hosts *h); // of those that are not lost

// Asks every host and sets `lost`. DT_E_USAGE for a host that answers, but cannot run the job, or runs another one. The
// last line of a lost host's answer tells why.
dt_status launch_hosts_ask(launch_hosts *h, const dt_config *c, const char *config_path);
// A line for sh that runs `command` on the host. Heap.
char *launch_host_command(const launch_hosts *h, const launch_host *host, const char *command);
// Subnets ("10.0.0.0/24,…") by which this machine reaches all others. NULL: some are behind a router, or there are
// none. Heap.
char *launch_hosts_subnets(const launch_hosts *h);

#endif
