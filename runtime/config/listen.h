// listen.h: metrics.listen, an address to listen on: "127.0.0.1:9464", "[::1]:9464". 0.0.0.0 and [::] are all of the host's
// addresses, [::] those of IPv6 and IPv4.
#ifndef DT_CONFIG_LISTEN_H
#define DT_CONFIG_LISTEN_H

#include "config/config.h"

#include <netinet/in.h>

typedef union dt_listen {
    struct sockaddr any; // its sa_family says which
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} dt_listen;

// DT_E_USAGE with the place of what is wrong; loading a config asks this.
dt_status dt_listen_read(dt_listen *out, const dt_config *c);
int dt_listen_port(const dt_listen *l);

#endif
