// launch_hosts.c: dtrain launch hosts.

#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "store/blob.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- host list ----------------------------------------------------------------------------------------------------

// The hosts of `dtrain launch hosts`, and what is asked of each before a job starts there.
//
// A host is asked with one command, over ssh or what stands for it, 32 at a time: the folder, dtrain's version, a
// checksum of the config, and the sizes of the data set's files, of a folder the names in it. The first host's answers are what the others are
// compared with. The only shell on the way is the one that sshd starts there; what it reads is quoted in one place.

enum { LAUNCH_AT_ONCE = 32 }; // hosts that are asked

typedef struct job_host {
    char *name;
    int slots;            // ranks there
    bool local;           // this machine
    bool lost;            // did not answer when it was asked last, or not yet
    dt_cli_process asked; // the question; its answer stays until the next one
} job_host;

typedef struct host_list {
    job_host *hosts;
    int n;
    const char *agent;   // "ssh -o …", ahead of HOST COMMAND: words between blanks
    const char *program; // dtrain's path there
} host_list;

// ---- the list --------------------------------------------------------------------------------------

static bool has_address(const struct ifaddrs *all, const struct addrinfo *a) {
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        const struct sockaddr_in *mine = (const void *)i->ifa_addr, *its = (const void *)a->ai_addr;
        if (mine->sin_addr.s_addr == its->sin_addr.s_addr) return true;
    }
    return false;
}

static struct addrinfo *addresses(const char *name) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    return getaddrinfo(name, NULL, &hints, &found) == 0 ? found : NULL;
}

static bool is_this_machine(const char *name) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (strcmp(name, host) == 0 || strcmp(name, "localhost") == 0) return true; // without a question to DNS
    struct ifaddrs *all = NULL;
    struct addrinfo *found = addresses(name);
    if (getifaddrs(&all) != 0) all = NULL;
    bool is = false;
    for (const struct addrinfo *a = found; a && !is; a = a->ai_next) is = has_address(all, a);
    if (found) freeaddrinfo(found);
    freeifaddrs(all);
    return is;
}

// Whether the name is as DNS, /etc/hosts and ~/.ssh/config have them. The name is a word of ssh's and mpirun's
// command lines.
static bool is_host_name(const char *name) {
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || name[n] == '_' || (n > 0 && (name[n] == '.' || name[n] == '-'))) n++;
    return n > 0 && n < 256 && !name[n];
}

// "a:8", "a slots=8", "a".
static dt_status host_list_add(host_list *h, const char *text, size_t n, const char *where) {
    char *entry = dt_xprintf("%.*s", (int)n, text), *slots = NULL, *end = NULL;
    const size_t n_name = strcspn(entry, ": \t");
    if (entry[n_name]) {
        entry[n_name] = 0;
        slots = entry + n_name + 1 + strspn(entry + n_name + 1, " \t");
        if (strncmp(slots, "slots=", 6) == 0) slots += 6;
    }
    const long n_slots = slots ? strtol(slots, &end, 10) : 1;
    dt_status st = DT_OK;
    if (n_slots < 1 || n_slots > 100000 || (slots && (end == slots || end[strspn(end, " \t\r")])))
        st = dt_fail(DT_E_USAGE, "%s: '%.*s' is no host with its ranks, as in node1:8", where, (int)n, text);
    else if (!is_host_name(entry))
        st = dt_fail(DT_E_USAGE,
                     "%s: '%s' is no name of a host: letters, digits, '.', '-' and '_' (a user or "
                     "a port: --ssh 'ssh -l user -p 2222')",
                     where, entry);
    for (int i = 0; i < h->n && st == DT_OK; i++)
        if (strcmp(h->hosts[i].name, entry) == 0) st = dt_fail(DT_E_USAGE, "%s: %s is given twice", where, entry);
    if (st != DT_OK) {
        free(entry);
        return st;
    }
    h->hosts = dt_xrealloc(h->hosts, sizeof *h->hosts * (size_t)(h->n + 1));
    h->hosts[h->n++] = (job_host){.name = entry, .slots = (int)n_slots, .local = is_this_machine(entry)};
    return DT_OK;
}

static dt_status host_list_read_file(host_list *h, const char *file) {
    char *text = NULL, where[4096];
    size_t n_bytes;
    dt_status st = dt_io_read_file(&text, &n_bytes, file, 1 << 20, DT_E_USAGE);
    int number = 1;
    for (const char *p = text; st == DT_OK && *p; number++) {
        const size_t n_line = strcspn(p, "\n"), skip = strspn(p, " \t");
        size_t n = strcspn(p + skip, "#\n"); // # begins a comment, as in mpirun's hostfiles
        while (n > 0 && isspace((unsigned char)p[skip + n - 1])) n--;
        snprintf(where, sizeof where, "%s:%d", file, number);
        if (n > 0) st = host_list_add(h, p + skip, n, where);
        p += n_line + (p[n_line] != 0);
    }
    free(text);
    return st;
}

// "a:8,b:8", or a file with a line "a:8" or "a slots=8" for each. DT_E_USAGE.
static dt_status hosts_parse(host_list *h, const char *list, const char *file) {
    dt_status st = DT_OK;
    if (!list == !file) return dt_fail(DT_E_USAGE, "give --hosts a:8,b:8 or --hostfile FILE"); // neither, or both
    if (file) st = host_list_read_file(h, file);
    for (const char *p = list; list && st == DT_OK;) {
        const char *end = strchrnul(p, ',');
        st = host_list_add(h, p, (size_t)(end - p), "--hosts");
        if (!*end) break;
        p = end + 1;
    }
    if (st == DT_OK && h->n == 0) st = dt_fail(DT_E_USAGE, "%s names no host", file);
    return st;
}

static void hosts_free(host_list *h) {
    for (int i = 0; i < h->n; i++) {
        free(h->hosts[i].name);
        dt_cli_process_fini(&h->hosts[i].asked);
    }
    free(h->hosts);
}

// Of those that are not lost.
static int hosts_ranks(const host_list *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) n += h->hosts[i].lost ? 0 : h->hosts[i].slots;
    return n;
}

// ---- words for a host ------------------------------------------------------------------------------

// argv here, "agent… HOST 'argv'" elsewhere. in: as dt_cli_process_start.
static int start_there(const host_list *h, const job_host *host, dt_cli_process *p, const char *const *argv, int in,
                       double limit_s) {
    if (host->local) return dt_cli_process_start(p, argv, in, true, limit_s); // no sshd has to run here
    char *agent = dt_xstrdup(h->agent), *rest = agent, *line = dt_cli_quote_remote(argv);
    const char **words = dt_xcalloc(strlen(agent) / 2 + 4, sizeof *words);
    size_t n = 0;
    for (char *word; (word = strtok_r(rest, " ", &rest));) words[n++] = word;
    words[n++] = host->name;
    words[n++] = line; // one word: sshd gives it to the shell there
    const int e = dt_cli_process_start(p, words, in, true, limit_s);
    free(words);
    free(line);
    free(agent);
    return e;
}

// Runs argv on the host, at most so long: here, or by the agent, in the home folder there. What it writes is
// p->out.text. 0, or an errno.
static int host_run(const host_list *h, const job_host *host, dt_cli_process *p, const char *const *argv,
                    double limit_s) {
    const int e = start_there(h, host, p, argv, -1, limit_s);
    if (e == 0) dt_cli_processes_wait(&p, 1, INFINITY);
    return e;
}

// ---- asking ----------------------------------------------------------------------------------------

// A file without a name; whoever opens /proc/self/fd/N reads it from its start. -1: errno says why.
static int list_data(const dt_config *c) {
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *list = open_memstream(&text, &n_bytes);
    dt_names files = {0};
    dt_cli_list_data(c, &files);
    // each ended by a NUL; a folder as "folder/."; an object has no other size elsewhere
    for (size_t i = 0; i < files.n; i++)
        if (!dt_blob_is_url(files.name[i]))
            fprintf(list, "%s%s%c", files.name[i], dt_io_is_dir(files.name[i]) ? "/." : "", 0);
    dt_names_fini(&files);
    fclose(list);
    int fd = memfd_create("files", MFD_CLOEXEC);
    if (fd >= 0 && dt_io_write(fd, "files", text, n_bytes) != DT_OK) {
        close(fd);
        fd = -1;
    }
    free(text);
    return fd;
}

// Errors of the question take the same way as its answers: ssh would let one overtake the other. Of a folder it is the
// names of its files: sizes of millions of files would take too long, and ranks compare them when they start.
static const char QUESTION[] =
    "exec 2>&1; echo begin; cd \"$1\" && \"$2\" --version && cksum <\"$3\" && xargs -0 -r sh -c '"
    "stat -Lc \"%s %n\" \"$@\"; for f; do case $f in (*/.) echo \"names in $f: $(find \"$f\" "
    "! -type d ! -name \".*\" | LC_ALL=C sort | cksum)\";; esac; done' sh; echo end";

static void host_list_ask(const host_list *h, job_host *host, int list, const char *config_path) {
    char cwd[4096] = ".", path[32];
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, ".");
    snprintf(path, sizeof path, "/proc/self/fd/%d", list);
    const char *const argv[] = {"sh", "-c", QUESTION, "sh", cwd, h->program, config_path, NULL};
    const int in = open(path, O_RDONLY | O_CLOEXEC); // each reads from the start
    dt_cli_process_fini(&host->asked);
    const int e = start_there(h, host, &host->asked, argv, in, LAUNCH_REACH_S);
    if (in >= 0) close(in);
    host->lost = true; // until an answer is judged
    if (e == 0) return;
    free(host->asked.out.text);
    host->asked.out.text = dt_xprintf("%.*s: %s", (int)strcspn(h->agent, " "), h->agent, strerror(e));
}

// What is between "begin" and "end"; NULL: it is not whole. Ahead of it is what ssh and the shell say.
static const char *find_answer(const job_host *host) {
    const char *text = host->asked.out.text, *begin = text ? strstr(text, "begin\n") : NULL;
    const size_t n = begin ? strlen(begin) : 0;
    return n > 9 && strcmp(begin + n - 4, "end\n") == 0 ? begin + 6 : NULL; // "begin\n" and "end\n"
}

// Why a host is lost, as far as it is known: the last line that came. Not ended; *n bytes.
static const char *host_reason(const job_host *host, int *n) {
    const char *text = host->asked.out.text ? host->asked.out.text : "", *line = text;
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) length--;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n') line = text + i + 1;
    *n = (int)(text + length - line);
    return line;
}

// The line at `text` and the one behind it.
static const char *next_line(const char *text, int *n) {
    *n = (int)strcspn(text, "\n");
    return text + *n + (text[*n] != 0);
}

// The first line in which the host's answer is not that of `first`.
static dt_status host_list_compare(const job_host *host, const job_host *first, const char *program) {
    const char *a = find_answer(host), *b = find_answer(first);
    int n, n_first;
    const char *version = "dtrain " DTRAIN_VERSION "\n";
    next_line(a, &n);
    if (strncmp(a, "dtrain ", 7) != 0)
        return dt_fail(DT_E_USAGE, "host %s cannot run %s: %.*s", host->name, program, n, a);
    if (strncmp(a, version, strlen(version)) != 0)
        return dt_fail(DT_E_USAGE, "host %s has %.*s, and this is dtrain %s", host->name, n, a, DTRAIN_VERSION);
    for (int line = 0; *a || *b; line++) {
        const char *next = next_line(a, &n), *next_first = next_line(b, &n_first);
        // the size of a folder says nothing
        const bool folder = n > 2 && strncmp(a + n - 2, "/.", 2) == 0 && isdigit((unsigned char)*a);
        if (strncmp(a, "stat: ", 6) == 0)
            return dt_fail(DT_E_USAGE, "host %s does not see the data: %.*s", host->name, n, a);
        if (!folder && (n != n_first || strncmp(a, b, (size_t)n) != 0))
            return dt_fail(DT_E_USAGE, "host %s has %s (%.*s) than host %s (%.*s): copy it, or share the folder",
                           host->name, line == 1 ? "another config" : "other data", n, a, first->name, n_first, b);
        a = next;
        b = next_first;
    }
    return DT_OK;
}

// Reads what the hosts that are asked say, so long or until all of them have ended (true).
static bool wait_for_asked(host_list *h, double seconds) {
    dt_cli_process **all = dt_xcalloc((size_t)h->n, sizeof(dt_cli_process *));
    for (int i = 0; i < h->n; i++) all[i] = &h->hosts[i].asked;
    const bool ended = dt_cli_processes_wait(all, h->n, seconds);
    free(all);
    return ended;
}

// A host's sshd and the site's directory service refuse what comes in a flood.
static bool asks_enough(const host_list *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) n += h->hosts[i].asked.pid != 0;
    return n >= LAUNCH_AT_ONCE;
}

// Asks every host, or only those that are lost, and returns when the last ones have been asked. Answers may take LAUNCH_REACH_S: hosts_wait.
static dt_status hosts_ask(host_list *h, const dt_config *c, const char *config_path, bool only_lost) {
    const int list = list_data(c);
    if (list < 0) return dt_fail(DT_E_STORAGE, "no memory for the names of the data: %s", strerror(errno));
    for (int i = 0; i < h->n; i++) {
        if (only_lost && !h->hosts[i].lost) continue;
        while (asks_enough(h)) wait_for_asked(h, 0.02);
        host_list_ask(h, &h->hosts[i], list, config_path);
    }
    close(list);
    return DT_OK;
}

// Waits for answers, so long or until all are there (true), and sets `lost`: what has not answered yet is. DT_E_USAGE
// in *judged for a host that answers, but cannot run the job, or runs another one; it is lost, too.
static bool hosts_wait(host_list *h, double seconds, dt_status *judged) {
    const bool ended = wait_for_asked(h, seconds);
    const job_host *first = NULL; // one that runs the job, where there are such
    *judged = DT_OK;
    for (int i = 0; i < h->n && !first; i++)
        if (!h->hosts[i].lost && find_answer(&h->hosts[i])) first = &h->hosts[i];
    for (int i = 0; i < h->n; i++) {
        job_host *host = &h->hosts[i];
        if (!host->lost || host->asked.pid || !find_answer(host)) continue;
        const dt_status st = host_list_compare(host, first ? first : host, h->program);
        host->lost = st != DT_OK;
        if (st == DT_OK && !first) first = host; // the others are compared with it
        if (st != DT_OK) *judged = st;
    }
    return ended;
}

// ---- links -----------------------------------------------------------------------------------------

// Sends long packets to each host and back. The first that does not answer, as text (heap); NULL: all do.
static char *hosts_test_links(const host_list *h) {
    static const char *const argv[] = {"sh", "-c", "cat >/dev/null; head -c 60000 /dev/zero | tr \"\\0\" x", NULL};
    static const char zeros[60000]; // more than a jumbo frame, in both directions
    char *why = NULL;
    const int in = memfd_create("packets", MFD_CLOEXEC);
    const bool ready = in >= 0 && dt_io_write(in, "packets", zeros, sizeof zeros) == DT_OK;
    for (int i = 0; ready && i < h->n && !why; i++) {
        dt_cli_process p = {0};
        if (h->hosts[i].local || h->hosts[i].lost) continue;
        lseek(in, 0, SEEK_SET);
        int e = start_there(h, &h->hosts[i], &p, argv, in, LAUNCH_REACH_S);
        if (e == 0) dt_cli_processes_wait(&(dt_cli_process *){&p}, 1, INFINITY);
        if (e == 0 && p.code != 0) // ended by its limit: the packets did not come
            why = dt_xprintf(
                "host %s receives short packets and no long ones: the link drops them (MTU); compare 'ip link' on both "
                "ends and on what lies between, or lower the MTU (ip link set dev eth0 mtu 1400)",
                h->hosts[i].name);
        dt_cli_process_fini(&p);
    }
    if (in >= 0) close(in);
    return why;
}

// ---- interfaces ------------------------------------------------------------------------------------

// The subnet of ours that the address is in, as 10.0.0.0/24.
static bool find_subnet(const struct ifaddrs *all, struct in_addr to, char *out, size_t cap) {
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET) continue;
        const struct in_addr mine = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        const struct in_addr mask = ((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr;
        if ((mine.s_addr & mask.s_addr) != (to.s_addr & mask.s_addr)) continue; // behind a router
        char text[INET_ADDRSTRLEN];
        const struct in_addr net = {mine.s_addr & mask.s_addr};
        snprintf(out, cap, "%s/%d", inet_ntop(AF_INET, &net, text, sizeof text), __builtin_popcount(mask.s_addr));
        return true;
    }
    return false;
}

static bool find_route(const struct ifaddrs *all, const char *name, char *out, size_t cap) {
    struct addrinfo *found = addresses(name);
    bool is = false;
    if (found) {
        const struct sockaddr_in *to = (const void *)found->ai_addr;
        is = find_subnet(all, to->sin_addr, out, cap);
        freeaddrinfo(found);
    }
    return is;
}

// Subnets ("10.0.0.0/24,…") by which this machine reaches all others. NULL: some are behind a router, or there are
// none. Heap.
static char *hosts_subnets(const host_list *h) {
    struct ifaddrs *all = NULL;
    char net[64], *list = NULL;
    if (getifaddrs(&all) != 0) return NULL;
    bool reached = true;
    for (int i = 0; i < h->n && reached; i++) {
        if (h->hosts[i].local) continue;
        reached = find_route(all, h->hosts[i].name, net, sizeof net);
        if (!reached || (list && strstr(list, net))) continue; // a subnet once
        dt_xappend(&list, "%s%s", list ? "," : "", net);
    }
    freeifaddrs(all);
    if (!reached) {
        free(list);
        list = NULL;
    }
    return list;
}

// ---- launch hosts -------------------------------------------------------------------------------------------------

// Ranks on hosts that ssh reaches.
//
// Every host is asked before each start. A host that has gone is done without where the bits do not
// depend on the number of ranks (run.reproducible: elastic) and the first of the others sees the run's checkpoints;
// else it is waited for.

enum { HOSTS, HOSTFILE, RESTARTS, WAIT, NET, AGENT, PROGRAM, PRINT };
static const dt_cli_option options[] = {
    [HOSTS] = {"--hosts", "a:8,b:8", "hosts and their numbers of ranks (default 1)"},
    [HOSTFILE] = {"--hostfile", "FILE", "the same as a file, a line per host: a slots=8"},
    [RESTARTS] = {"--restarts", "N", "restarts after a lost rank, a lost host or a crash (default 0)"},
    [WAIT] = {"--wait", "SECONDS", "how long to wait for a lost host (default 600)"},
    [NET] = {"--net", "NET", "network interfaces: eth0 or 10.0.0.0/24,… (default: those of the route)"},
    [AGENT] = {"--ssh", "COMMAND", "replacement for ssh, called with HOST and COMMAND, such as 'ssh -p 2222'"},
    [PROGRAM] = {"--program", "PATH", "path of dtrain on the hosts (default: its path here)"},
    [PRINT] = {"--print", NULL, "print the command; contact no host"},
    {NULL}};

// Ahead of the job no terminal asks for passwords, and a host that is gone is noticed.
static const char ssh[] = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 "
                          "-o ServerAliveCountMax=3";

enum { POLL_S = 5 };
enum { PATIENCE_S = 3 }; // a host that has not answered by then is done without, where that can be

typedef struct job_on_hosts {
    host_list list;
    const job_host *first; // rank 0's in the last start
    const dt_cli_words *w;
    const dt_config *config;
    int wait_s;
    int n_ranks;            // of the last start
    bool warned;            // that a host that is back cannot run the job
    char *np, *where, *dir; // words of the command
    char **names;           // of variables, others
    size_t n_names;
} job_on_hosts;

// ---- the command -----------------------------------------------------------------------------------

static void set_both(const char *name4, const char *name5, const char *value, int overwrite) {
    setenv(name4, value, overwrite);
    setenv(name5, value, overwrite);
}

// For mpirun and its daemons; Open MPI 4 and 5.
static void set_environment(const job_on_hosts *j) {
    char *nets = j->w->options[NET] ? dt_xprintf("%s", j->w->options[NET]) : hosts_subnets(&j->list);
    set_both("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", j->list.agent, 1);
    if (nets) { // else Open MPI chooses, by routes
        setenv("OMPI_MCA_btl_tcp_if_include", nets, 1);
        set_both("OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include", nets, 1);
    }
    free(nets);
    // a lost host is noticed within about ten seconds; Open MPI has 300 + 9 probes of 20 s
    set_both("OMPI_MCA_oob_tcp_keepalive_time", "PRTE_MCA_oob_tcp_keepalive_time", "3", 0);
    set_both("OMPI_MCA_oob_tcp_keepalive_intvl", "PRTE_MCA_oob_tcp_keepalive_intvl", "1", 0);
    set_both("OMPI_MCA_oob_tcp_keepalive_probes", "PRTE_MCA_oob_tcp_keepalive_probes", "3", 0);
}

static void set_words(job_on_hosts *j) {
    char cwd[4096] = ".";
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, ".");
    free(j->np);
    free(j->where);
    free(j->dir);
    j->n_ranks = hosts_ranks(&j->list);
    j->np = dt_xprintf("%d", j->n_ranks);
    j->dir = dt_xprintf("%s", cwd);
    j->where = dt_xprintf("%s", ""); // "a,a,b": a host for each rank
    j->first = NULL;
    for (int i = 0; i < j->list.n; i++) {
        const job_host *host = &j->list.hosts[i];
        if (host->lost) continue; // its ranks wait, or the others go on
        if (!j->first) j->first = host;
        for (int k = 0; k < host->slots; k++) dt_xappend(&j->where, "%s%s", *j->where ? "," : "", host->name);
    }
}

// Settings of the user's shell that the ranks elsewhere would not have.
static bool is_passed_on(const char *variable) {
    return strncmp(variable, "DTRAIN_", 7) == 0 || strncmp(variable, "OMP_", 4) == 0 ||
           strncmp(variable, "NCCL_", 5) == 0;
}

static const char **make_command(job_on_hosts *j) {
    extern char **environ;
    set_words(j);
    set_environment(j);
    // in the order of the list: by slot mpirun begins with its own host
    const char *const mpi[] = {"mpirun", "--map-by",  "seq",  "--host", j->where, "-np",
                               j->np,    "--bind-to", "none", "--wdir", j->dir};
    const char **train = dt_cli_train_words(j->w);
    size_t n = sizeof mpi / sizeof *mpi, n_words = 0, n_env = 0;
    while (train[n_words]) n_words++;
    while (environ[n_env]) n_env++;
    const char **argv = dt_xcalloc(n + 2 * n_env + n_words + 2, sizeof *argv);
    memcpy(argv, mpi, sizeof mpi);
    dt_io_free_list(j->names, j->n_names);
    j->names = dt_xcalloc(n_env + 1, sizeof *j->names);
    j->n_names = 0;
    for (size_t i = 0; i < n_env; i++) {
        // mpirun takes the value from its environment, which ps does not show
        const bool secret = strncmp(environ[i], "AWS_", 4) == 0;
        if (!secret && !is_passed_on(environ[i])) continue;
        char *name = dt_xprintf("%.*s", (int)strcspn(environ[i], "="), environ[i]);
        j->names[j->n_names++] = name;
        argv[n++] = "-x";
        argv[n++] = secret ? name : environ[i]; // -x NAME or -x NAME=VALUE
    }
    argv[n++] = j->list.program;
    memcpy(argv + n, train, n_words * sizeof *argv);
    free(train);
    return argv;
}

// ---- lost hosts ------------------------------------------------------------------------------------

static const job_host *find_lost(const host_list *l) {
    for (int i = 0; i < l->n; i++)
        if (l->hosts[i].lost) return &l->hosts[i];
    return NULL;
}

static dt_status fail_lost(const job_host *h, dt_status code) {
    int n;
    const char *line = host_reason(h, &n);
    if (n == 0) return dt_fail(code, "host %s does not respond: no output in %d s", h->name, LAUNCH_REACH_S);
    return dt_fail(code, "host %s does not respond: %.*s", h->name, n, line);
}

static int launch_hosts_reach(void *ctx, dt_cli_process *p, const char *const *argv) {
    const job_on_hosts *j = ctx;
    return host_run(&j->list, j->first, p, argv, LAUNCH_REACH_S);
}

// Whether the host that would be rank 0's sees a checkpoint of the run, which may have lain on the disk of another one.
static bool sees_run(const job_on_hosts *j, const job_host *host) {
    static const char script[] = "cd \"$1\" && cd \"$2/$3/checkpoints\" && ls -d step-*";
    const char *const argv[] = {"sh", "-c", script, "sh", j->dir, j->config->run.dir, j->config->run.name, NULL};
    dt_cli_process p;
    const bool sees = host_run(&j->list, host, &p, argv, LAUNCH_REACH_S) == 0 && p.code == 0;
    dt_cli_process_fini(&p);
    return sees;
}

static bool can_go_on(const job_on_hosts *j) {
    const job_host *first = NULL;
    for (int i = j->list.n - 1; i >= 0; i--)
        if (!j->list.hosts[i].lost) first = &j->list.hosts[i];
    return first && j->config->run.reproducible == DT_REPRODUCIBLE_elastic && (first == j->first || sees_run(j, first));
}

static dt_status wait_for_hosts(job_on_hosts *j, dt_cli_jobs *jobs) {
    const double begin_s = dt_clock_s();
    bool warned = false;
    for (;;) {
        dt_status judged; // a host may be back before its file systems are
        DT_TRY(hosts_ask(&j->list, j->config, j->w->words[0], false));
        bool all = hosts_wait(&j->list, PATIENCE_S, &judged), goes_on = can_go_on(j);
        if (!all && !goes_on) {
            hosts_wait(&j->list, INFINITY, &judged);
            goes_on = can_go_on(j);
        }
        const job_host *lost = find_lost(&j->list);
        if (!lost) return DT_OK;
        if (judged == DT_OK) (void)fail_lost(lost, DT_E_PEER);
        if (!goes_on && dt_clock_s() - begin_s >= j->wait_s)
            return dt_fail_context(judged == DT_OK ? DT_E_PEER : judged, "waited %d s (--wait)", j->wait_s);
        if (goes_on)
            dt_warn("%s: the job continues with the %d ranks of the other hosts, and uses this host again from the "
                    "first checkpoint after its return",
                    dt_error_message(), hosts_ranks(&j->list));
        else if (!warned)
            dt_warn("%s: waiting up to %d s for the host%s", dt_error_message(), j->wait_s,
                    j->config->run.reproducible == DT_REPRODUCIBLE_elastic
                        ? " (the others do not see the run's folder)"
                        : " (run.reproducible: elastic would continue without the host)");
        dt_error_clear();
        if (goes_on) return DT_OK;
        warned = true;
        if (!dt_cli_jobs_pause(jobs, POLL_S)) return DT_E_PREEMPTED;
    }
}

static char *explain(void *ctx) {
    const job_on_hosts *j = ctx;
    char *why = hosts_test_links(&j->list);
    return why ? why
               : dt_xprintf("ssh reaches all %d hosts; look for a firewall between them: mpirun's "
                            "daemons and ranks connect to ports of their own (--net chooses the "
                            "interfaces)",
                            j->list.n);
}

// What was lost is asked all the time while the job runs without it.
static bool launch_hosts_watch(void *ctx) {
    job_on_hosts *j = ctx;
    dt_status judged = DT_OK;
    const int before = hosts_ranks(&j->list);
    if (find_lost(&j->list) && hosts_wait(&j->list, 0, &judged) && find_lost(&j->list)) {
        if (judged != DT_OK && !j->warned) dt_warn("%s: the host is not used again", dt_error_message());
        j->warned |= judged != DT_OK;
        if (hosts_ask(&j->list, j->config, j->w->words[0], true) != DT_OK) dt_error_clear();
    }
    if (judged != DT_OK) dt_error_clear();
    const int now = hosts_ranks(&j->list);
    if (now > before) dt_info("a lost host is back: from its next checkpoint the job continues with %d ranks", now);
    return now > j->n_ranks; // so many are worth a new start
}

static dt_status launch_hosts_command(void *ctx, dt_cli_jobs *jobs, bool again, const char ***argv) {
    job_on_hosts *j = ctx;
    if (again) DT_TRY(wait_for_hosts(j, jobs));
    *argv = make_command(j);
    return DT_OK;
}

// ---- the verb --------------------------------------------------------------------------------------

static dt_status launch_hosts_start(job_on_hosts *j, int restarts) {
    if (j->w->options[PRINT]) {
        const char **argv = make_command(j);
        dt_cli_print_command(argv, true);
        free(argv);
        return DT_OK;
    }
    dt_status judged;
    DT_TRY(hosts_ask(&j->list, j->config, j->w->words[0], false));
    hosts_wait(&j->list, INFINITY, &judged);
    DT_TRY(judged);
    const job_host *lost = find_lost(&j->list);
    if (lost) return fail_lost(lost, DT_E_USAGE);
    return dt_cli_supervise(&(dt_cli_supervised){.config = j->config,
                                                 .restarts = restarts,
                                                 .command = launch_hosts_command,
                                                 .reach = launch_hosts_reach,
                                                 .explain = explain,
                                                 .watch = launch_hosts_watch,
                                                 .ctx = j});
}

static dt_status launch_hosts_run(const dt_cli_words *w) {
    job_on_hosts j = {.w = w};
    dt_config *c = NULL;
    dt_run_length length;
    int restarts;
    if (dt_cli_mpi() == DT_MPI_MPICH) // its mpirun has neither the options nor the daemons
        return dt_fail(DT_E_USAGE,
                       "dtrain launch hosts starts ranks with Open MPI's mpirun, and the mpirun here is MPICH's: "
                       "put Open MPI's first in PATH, or use mpirun -hosts HOST,… dtrain CONFIG.yaml");
    DT_TRY(dt_cli_option_int(w, RESTARTS, 0, &restarts));
    DT_TRY(dt_cli_option_int(w, WAIT, 600, &j.wait_s));
    j.list.agent = w->options[AGENT] ? w->options[AGENT] : ssh;
    j.list.program = w->options[PROGRAM] ? w->options[PROGRAM] : dt_cli_program();
    dt_status st = hosts_parse(&j.list, w->options[HOSTS], w->options[HOSTFILE]);
    if (st == DT_OK) st = dt_cli_target_config(&c, "launch hosts", w);
    if (st == DT_OK) st = dt_cli_target_ranks(c, hosts_ranks(&j.list));
    if (st == DT_OK) st = dt_cli_target_check(c, true, 0, &length);
    j.config = c;
    if (st == DT_OK) st = launch_hosts_start(&j, restarts);
    hosts_free(&j.list);
    dt_config_destroy(c);
    dt_io_free_list(j.names, j.n_names);
    free(j.np);
    free(j.where);
    free(j.dir);
    return st;
}

const dt_cli_command dt_cli_on_hosts = {
    .options = options,
    .text =
        "Starts ranks over ssh (without a password prompt) in the current folder's path on each host, forwards signals "
        "and exits with the job's exit code. Before the start each host is checked: reachable, same version of dtrain, "
        "same config, data files of the same names and sizes. If a host fails a check, its name is printed and nothing "
        "starts. With --restarts the job waits for a lost host. With run.reproducible: elastic the job continues "
        "without the lost host, and uses it again from the first checkpoint after its return.\n\n"
        "  dtrain launch hosts --hosts node1:8,node2:8 configs/fusion.yaml\n"
        "  dtrain launch hosts --hostfile hosts.txt --restarts 5 configs/fusion.yaml\n",
    .run = launch_hosts_run};
