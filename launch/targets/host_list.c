// host_list.c: see host_list.h.

#define _GNU_SOURCE // strchrnul, memfd_create

#include "host_list.h"

#include "target.h"

#include "base/arena.h"
#include "base/io.h"
#include "store/blob_url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
    if (strcmp(name, host) == 0 || strcmp(name, "localhost") == 0) return true;
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
static dt_status host_list_add(dt_cli_hosts *h, const char *text, size_t n, const char *where) {
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
    h->hosts[h->n++] = (dt_cli_host){.name = entry, .slots = (int)n_slots, .local = is_this_machine(entry)};
    return DT_OK;
}

static dt_status host_list_read_file(dt_cli_hosts *h, const char *file) {
    char *text = NULL, where[4096];
    size_t n_bytes;
    dt_status st = dt_io_read_file(&text, &n_bytes, file, 1 << 20, DT_E_USAGE);
    int number = 1;
    for (const char *p = text; st == DT_OK && *p; number++) {
        const size_t n_line = strcspn(p, "\n"), skip = strspn(p, " \t");
        size_t n = strcspn(p + skip, "#\n");
        while (n > 0 && isspace((unsigned char)p[skip + n - 1])) n--;
        snprintf(where, sizeof where, "%s:%d", file, number);
        if (n > 0) st = host_list_add(h, p + skip, n, where);
        p += n_line + (p[n_line] != 0);
    }
    free(text);
    return st;
}

dt_status dt_cli_hosts_parse(dt_cli_hosts *h, const char *list, const char *file) {
    dt_status st = DT_OK;
    if (!list == !file) return dt_fail(DT_E_USAGE, "give --hosts a:8,b:8 or --hostfile FILE");
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

void dt_cli_hosts_free(dt_cli_hosts *h) {
    for (int i = 0; i < h->n; i++) {
        free(h->hosts[i].name);
        dt_cli_process_fini(&h->hosts[i].asked);
    }
    free(h->hosts);
}

int dt_cli_hosts_ranks(const dt_cli_hosts *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) n += h->hosts[i].lost ? 0 : h->hosts[i].slots;
    return n;
}

// ---- words for a host ------------------------------------------------------------------------------

// argv here, "agent… HOST 'argv'" elsewhere. in: as dt_cli_process_start.
static int start_there(const dt_cli_hosts *h, const dt_cli_host *host, dt_cli_process *p, const char *const *argv,
                       int in, double limit_s) {
    if (host->local) return dt_cli_process_start(p, argv, in, true, limit_s);
    char *agent = dt_xstrdup(h->agent), *rest = agent, *line = dt_cli_quote_remote(argv);
    const char **words = dt_xcalloc(strlen(agent) / 2 + 4, sizeof *words);
    size_t n = 0;
    for (char *word; (word = strtok_r(rest, " ", &rest));) words[n++] = word;
    words[n++] = host->name;
    words[n++] = line;
    const int e = dt_cli_process_start(p, words, in, true, limit_s);
    free(words);
    free(line);
    free(agent);
    return e;
}

int dt_cli_host_run(const dt_cli_hosts *h, const dt_cli_host *host, dt_cli_process *p, const char *const *argv,
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

static void host_list_ask(const dt_cli_hosts *h, dt_cli_host *host, int list, const char *config_path) {
    char cwd[4096] = ".", path[32];
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, ".");
    snprintf(path, sizeof path, "/proc/self/fd/%d", list);
    const char *const argv[] = {"sh", "-c", QUESTION, "sh", cwd, h->program, config_path, NULL};
    const int in = open(path, O_RDONLY | O_CLOEXEC); // each reads from the start
    dt_cli_process_fini(&host->asked);
    const int e = start_there(h, host, &host->asked, argv, in, LAUNCH_REACH_S);
    if (in >= 0) close(in);
    host->lost = true;
    if (e == 0) return;
    free(host->asked.out.text);
    host->asked.out.text = dt_xprintf("%.*s: %s", (int)strcspn(h->agent, " "), h->agent, strerror(e));
}

// What is between "begin" and "end"; NULL: it is not whole. Ahead of it is what ssh and the shell say.
static const char *find_answer(const dt_cli_host *host) {
    const char *text = host->asked.out.text, *begin = text ? strstr(text, "begin\n") : NULL;
    const size_t n = begin ? strlen(begin) : 0;
    return n > 9 && strcmp(begin + n - 4, "end\n") == 0 ? begin + 6 : NULL;
}

const char *dt_cli_host_reason(const dt_cli_host *host, int *n) {
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
static dt_status host_list_compare(const dt_cli_host *host, const dt_cli_host *first, const char *program) {
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
static bool wait_for_asked(dt_cli_hosts *h, double seconds) {
    dt_cli_process **all = dt_xcalloc((size_t)h->n, sizeof(dt_cli_process *));
    for (int i = 0; i < h->n; i++) all[i] = &h->hosts[i].asked;
    const bool ended = dt_cli_processes_wait(all, h->n, seconds);
    free(all);
    return ended;
}

// A host's sshd and the site's directory service refuse what comes in a flood.
static bool asks_enough(const dt_cli_hosts *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) n += h->hosts[i].asked.pid != 0;
    return n >= LAUNCH_AT_ONCE;
}

dt_status dt_cli_hosts_ask(dt_cli_hosts *h, const dt_config *c, const char *config_path, bool only_lost) {
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

bool dt_cli_hosts_wait(dt_cli_hosts *h, double seconds, dt_status *judged) {
    const bool ended = wait_for_asked(h, seconds);
    const dt_cli_host *first = NULL; // one that runs the job, where there are such
    *judged = DT_OK;
    for (int i = 0; i < h->n && !first; i++)
        if (!h->hosts[i].lost && find_answer(&h->hosts[i])) first = &h->hosts[i];
    for (int i = 0; i < h->n; i++) {
        dt_cli_host *host = &h->hosts[i];
        if (!host->lost || host->asked.pid || !find_answer(host)) continue;
        const dt_status st = host_list_compare(host, first ? first : host, h->program);
        host->lost = st != DT_OK;
        if (st == DT_OK && !first) first = host;
        if (st != DT_OK) *judged = st;
    }
    return ended;
}

// ---- links -----------------------------------------------------------------------------------------

char *dt_cli_hosts_test_links(const dt_cli_hosts *h) {
    static const char *const argv[] = {"sh", "-c", "cat >/dev/null; head -c 60000 /dev/zero | tr \"\\0\" x", NULL};
    static const char zeros[60000];
    char *why = NULL;
    const int in = memfd_create("packets", MFD_CLOEXEC);
    const bool ready = in >= 0 && dt_io_write(in, "packets", zeros, sizeof zeros) == DT_OK;
    for (int i = 0; ready && i < h->n && !why; i++) {
        dt_cli_process p = {0};
        if (h->hosts[i].local || h->hosts[i].lost) continue;
        lseek(in, 0, SEEK_SET);
        int e = start_there(h, &h->hosts[i], &p, argv, in, LAUNCH_REACH_S);
        if (e == 0) dt_cli_processes_wait(&(dt_cli_process *){&p}, 1, INFINITY);
        if (e == 0 && p.code != 0)
            why = dt_xprintf("host %s answers short packets and no long ones: the link drops them "
                             "(MTU); compare 'ip link' on both ends and on what lies between, or "
                             "lower the MTU (ip link set dev eth0 mtu 1400)",
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
        if ((mine.s_addr & mask.s_addr) != (to.s_addr & mask.s_addr)) continue;
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

char *dt_cli_hosts_subnets(const dt_cli_hosts *h) {
    struct ifaddrs *all = NULL;
    char net[64], *list = NULL;
    if (getifaddrs(&all) != 0) return NULL;
    bool reached = true;
    for (int i = 0; i < h->n && reached; i++) {
        if (h->hosts[i].local) continue;
        reached = find_route(all, h->hosts[i].name, net, sizeof net);
        if (!reached || (list && strstr(list, net))) continue;
        dt_xappend(&list, "%s%s", list ? "," : "", net);
    }
    freeifaddrs(all);
    if (!reached) {
        free(list);
        list = NULL;
    }
    return list;
}
