// url.h: secrets in URLs. What stands in a URL stands in logs, configs, reports and other servers' logs as well, so texts
// of users are checked where they enter: command line, config, environment, lists of shards.
#ifndef DT_BASE_URL_H
#define DT_BASE_URL_H

#include "core.h"

// DT_E_USAGE: in one of the URLs of `text` (SCHEME://…, of any scheme, wherever it begins) is a name or a password (up to
// the last @ before the path), or a parameter that by its name may be a secret; or it has an @ and does not come apart. The
// message holds nothing of these. Text without URLs is fine.
dt_status dt_url_check(const char *text);

#endif
