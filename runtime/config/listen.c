// listen.c: see listen.h.

#include "config/listen.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_port(const char *text, in_port_t *out) {
    char *end;
    const long port = strtol(text, &end, 10);
    *out = htons((uint16_t)port);
    return *text >= '0' && *text <= '9' && !*end && port >= 1 && port <= 65535;
}

dt_status dt_listen_read(dt_listen *out, const dt_config *c) {
    const char *text = c->metrics.listen, *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN + 2] = "";
    const size_t n = colon ? (size_t)(colon - text) : sizeof host;
    *out = (dt_listen){0};
    if (n < sizeof host) memcpy(host, text, n);
    if (n < sizeof host && n > 2 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0;
        out->v6.sin6_family = AF_INET6;
        if (inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1 && read_port(colon + 1, &out->v6.sin6_port))
            return DT_OK;
    } else if (inet_pton(AF_INET, host, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        if (read_port(colon + 1, &out->v4.sin_port)) return DT_OK;
    }
    return dt_config_fail(c, "metrics.listen",
                          "metrics.listen is '%s'; expected ADDRESS:PORT, as in 127.0.0.1:9464 "
                          "(this host), 0.0.0.0:9464 or \"[::]:9464\" (all that reach it)",
                          text);
}

int dt_listen_port(const dt_listen *l) {
    return ntohs(l->any.sa_family == AF_INET6 ? l->v6.sin6_port : l->v4.sin_port);
}
