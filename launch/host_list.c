// host_list.c: see host_list.h.

#define _GNU_SOURCE // strchrnul

#include "host_list.h"

#include "target.h"

#include "base/arena.h"
#include "base/io.h"
#include "data/source/source.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_S = 20 }; // a host that takes longer is lost

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

// "a:8", "a slots=8", "a".
static dt_status add(launch_hosts *h, const char *text, size_t n, const char *where) {
    char *entry = dt_xprintf("%.*s", (int)n, text), *slots = NULL, *end = NULL;
    const size_t n_name = strcspn(entry, ": \t");
    if (entry[n_name]) {
        entry[n_name] = 0;
        slots = entry + n_name + 1 + strspn(entry + n_name + 1, " \t");
        if (strncmp(slots, "slots=", 6) == 0) slots += 6;
    }
    const long n_slots = slots ? strtol(slots, &end, 10) : 1;
    if (n_name == 0 || *entry == '-' || n_slots < 1 || n_slots > 100000 ||
        (slots && (end == slots || end[strspn(end, " \t\r")]))) {
        dt_status st = dt_fail(DT_E_USAGE, "%s: '%.*s' is no host with its ranks, as in node1:8",
                               where, (int)n, text);
        free(entry);
        return st;
    }
    for (int i = 0; i < h->n; i++)
        if (strcmp(h->hosts[i].name, entry) == 0) {
            dt_status st = dt_fail(DT_E_USAGE, "%s: %s is given twice", where, entry);
            free(entry);
            return st;
        }
    h->hosts = dt_xrealloc(h->hosts, sizeof *h->hosts * (size_t)(h->n + 1));
    h->hosts[h->n++] =
        (launch_host){.name = entry, .slots = (int)n_slots, .local = is_this_machine(entry)};
    return DT_OK;
}

static dt_status read_file(launch_hosts *h, const char *file) {
    char *text = NULL, where[4096];
    size_t n_bytes;
    dt_status st = dt_io_read_file(&text, &n_bytes, file, 1 << 20, DT_E_USAGE);
    int number = 1;
    for (const char *p = text; st == DT_OK && *p; number++) {
        const size_t n_line = strcspn(p, "\n"), skip = strspn(p, " \t");
        size_t n = strcspn(p + skip, "#\n");
        while (n > 0 && isspace((unsigned char)p[skip + n - 1])) n--;
        snprintf(where, sizeof where, "%s:%d", file, number);
        if (n > 0) st = add(h, p + skip, n, where);
        p += n_line + (p[n_line] != 0);
    }
    free(text);
    return st;
}

dt_status launch_hosts_parse(launch_hosts *h, const char *list, const char *file) {
    dt_status st = DT_OK;
    if (!list == !file) return dt_fail(DT_E_USAGE, "give --hosts a:8,b:8 or --hostfile FILE");
    if (file) st = read_file(h, file);
    for (const char *p = list; list && st == DT_OK;) {
        const char *end = strchrnul(p, ',');
        st = add(h, p, (size_t)(end - p), "--hosts");
        if (!*end) break;
        p = end + 1;
    }
    if (st == DT_OK && h->n == 0) st = dt_fail(DT_E_USAGE, "%s names no host", file);
    return st;
}

void launch_hosts_free(launch_hosts *h) {
    for (int i = 0; i < h->n; i++) {
        free(h->hosts[i].name);
        free(h->hosts[i].answer);
    }
    free(h->hosts);
}

int launch_hosts_ranks(const launch_hosts *h) {
    int n = 0;
    for (int i = 0; i < h->n; i++) n += h->hosts[i].lost ? 0 : h->hosts[i].slots;
    return n;
}

// ---- asking ----------------------------------------------------------------------------------------

char *launch_host_command(const launch_hosts *h, const launch_host *host, const char *command) {
    char *word = launch_quote(command);
    char *inner = dt_xprintf("sh -c %s", word), *outer = launch_quote(inner);
    char *line =
        host->local ? dt_xprintf("%s", inner) : dt_xprintf("%s %s %s", h->agent, host->name, outer);
    free(outer);
    free(inner);
    free(word);
    return line;
}

// The files of data.path, each ended by a NUL; a folder, whose size says nothing, as "folder/.".
static void list_files(FILE *out, const char *pattern) {
    dt_names files = {0};
    if (dt_expand_files(pattern, &files) != DT_OK) dt_error_clear();
    for (size_t i = 0; i < files.n; i++) {
        const char *name = files.name[i];
        char *lmdb = dt_xprintf("%s/data.mdb", name);
        const char *shown = dt_io_exists(lmdb) ? lmdb : name;
        fprintf(out, "%s%s%c", shown, dt_io_is_dir(shown) ? "/." : "", 0);
        free(lmdb);
    }
    dt_names_fini(&files);
}

static FILE *list_data(const dt_config *c) {
    FILE *list = tmpfile();
    const dt_cnode *path = dt_config_node(c, "data.path");
    const bool several = dt_cnode_kind(path) == DT_C_LIST;
    for (size_t i = 0; list && i < (several ? dt_cnode_size(path) : 1); i++) {
        const dt_cnode *item = several ? dt_cnode_item(path, i) : path;
        if (dt_cnode_kind(item) == DT_C_MAP) item = dt_cnode_get(item, "path");
        list_files(list, dt_cnode_str(item));
    }
    if (list) fflush(list);
    return list;
}

// Its errors take the same way as its answers: ssh would let one overtake the other.
static char *question(const launch_hosts *h, const char *config_path) {
    char cwd[4096] = ".";
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, ".");
    char *dir = launch_quote(cwd), *program = launch_quote(h->program);
    char *config = launch_quote(config_path);
    char *text = dt_xprintf("exec 2>&1; echo begin; cd %s && %s --version && cksum <%s && "
                            "xargs -0 -r stat -Lc \"%%s %%n\"; echo end",
                            dir, program, config);
    free(config);
    free(program);
    free(dir);
    return text;
}

static void read_answer(launch_host *host) {
    size_t n = 0;
    free(host->answer);
    host->answer = NULL;
    FILE *all = open_memstream(&host->answer, &n);
    for (int byte; host->asked && (byte = fgetc(host->asked)) != EOF;) fputc(byte, all);
    fclose(all);
    if (host->asked) pclose(host->asked);
    host->asked = NULL;
    const char *begin = strstr(host->answer, "begin\n"); // ahead of it: what ssh and the shell say
    host->lost = !begin || n < 4 || strcmp(host->answer + n - 4, "end\n") != 0;
    if (!host->lost) memmove(host->answer, begin + 6, strlen(begin + 6) + 1);
}

// The line at `text` and the one behind it.
static const char *next_line(const char *text, int *n) {
    *n = (int)strcspn(text, "\n");
    return text + *n + (text[*n] != 0);
}

// The first line in which the host's answer is not that of `first`.
static dt_status compare(const launch_host *host, const launch_host *first, const char *program) {
    const char *a = host->answer, *b = first->answer;
    int n, n_first;
    const char *version = "dtrain " DTRAIN_VERSION "\n";
    next_line(a, &n);
    if (strncmp(a, "dtrain ", 7) != 0)
        return dt_fail(DT_E_USAGE, "host %s cannot run %s: %.*s", host->name, program, n, a);
    if (strncmp(a, version, strlen(version)) != 0)
        return dt_fail(DT_E_USAGE, "host %s has %.*s, and this is dtrain %s", host->name, n, a,
                       DTRAIN_VERSION);
    for (int line = 0; *a || *b; line++) {
        const char *next = next_line(a, &n), *next_first = next_line(b, &n_first);
        // the size of a folder says nothing
        const bool folder = n > 2 && strncmp(a + n - 2, "/.", 2) == 0 && isdigit((unsigned char)*a);
        if (strncmp(a, "stat: ", 6) == 0)
            return dt_fail(DT_E_USAGE, "host %s does not see the data: %.*s", host->name, n, a);
        if (!folder && (n != n_first || strncmp(a, b, (size_t)n) != 0))
            return dt_fail(
                DT_E_USAGE,
                "host %s has %s (%.*s) than host %s (%.*s): copy it, or share the folder",
                host->name, line == 1 ? "another config" : "other data", n, a, first->name, n_first,
                b);
        a = next;
        b = next_first;
    }
    return DT_OK;
}

dt_status launch_hosts_ask(launch_hosts *h, const dt_config *c, const char *config_path) {
    FILE *list = list_data(c);
    if (!list) return dt_fail(DT_E_STORAGE, "no temporary file can be made");
    char *text = question(h, config_path);
    for (int i = 0; i < h->n; i++) {
        char *command = launch_host_command(h, &h->hosts[i], text);
        char *line = dt_xprintf("timeout -k 1 %d %s </proc/%d/fd/%d 2>&1", ANSWER_S, command,
                                (int)getpid(), fileno(list));
        h->hosts[i].asked = popen(line, "re");
        free(line);
        free(command);
    }
    free(text);
    for (int i = 0; i < h->n; i++) read_answer(&h->hosts[i]);
    fclose(list);
    const launch_host *first = NULL;
    dt_status st = DT_OK;
    for (int i = 0; i < h->n && st == DT_OK; i++) {
        if (h->hosts[i].lost) continue;
        if (!first) first = &h->hosts[i];
        st = compare(&h->hosts[i], first, h->program);
    }
    return st;
}

// ---- interfaces ------------------------------------------------------------------------------------

// The subnet of ours that the address is in, as 10.0.0.0/24.
static bool find_subnet(const struct ifaddrs *all, struct in_addr to, char *out, size_t cap) {
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET) continue;
        const struct in_addr mine =
            ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        const struct in_addr mask =
            ((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr;
        if ((mine.s_addr & mask.s_addr) != (to.s_addr & mask.s_addr)) continue;
        char text[INET_ADDRSTRLEN];
        const struct in_addr net = {mine.s_addr & mask.s_addr};
        snprintf(out, cap, "%s/%d", inet_ntop(AF_INET, &net, text, sizeof text),
                 __builtin_popcount(mask.s_addr));
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

char *launch_hosts_subnets(const launch_hosts *h) {
    struct ifaddrs *all = NULL;
    char net[64], *list = NULL;
    if (getifaddrs(&all) != 0) return NULL;
    bool reached = true;
    for (int i = 0; i < h->n && reached; i++) {
        if (h->hosts[i].local) continue;
        reached = find_route(all, h->hosts[i].name, net, sizeof net);
        if (!reached || (list && strstr(list, net))) continue;
        char *longer = dt_xprintf("%s%s%s", list ? list : "", list ? "," : "", net);
        free(list);
        list = longer;
    }
    freeifaddrs(all);
    if (!reached) {
        free(list);
        list = NULL;
    }
    return list;
}
