// kept_names.h: names that belong to other tools or the file system, not to data.
#ifndef DT_DATA_KEPT_NAMES_H
#define DT_DATA_KEPT_NAMES_H

#include <stdbool.h>
#include <string.h>

// Of a member or a key: "__x__/…" and "__x__.…", what WebDataset's tools keep for themselves.
static inline bool dt_name_is_private(const char *path) {
    size_t n = strcspn(path, "/");
    if (!path[n]) n = strcspn(path, ".");
    return n >= 4 && memcmp(path, "__", 2) == 0 && memcmp(path + n - 2, "__", 2) == 0;
}

// Files and folders that a file system, a server or a desktop keeps for itself: hidden ones; thumbnails, snapshots and
// deleted files under the names of Synology, QNAP, Windows and macOS; "lost+found" at the root of a disk, which only
// root may enter. None is data, so a folder is fine even if these cannot be listed.
static inline bool dt_name_is_hidden(const char *name, bool at_root) {
    static const char *const NAMES[] = {
        "@eaDir", "#recycle", "#snapshot", "@Recycle", "$RECYCLE.BIN", "__MACOSX", "System Volume Information"};
    if (name[0] == '.' || (at_root && strcmp(name, "lost+found") == 0)) return true;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i]) == 0) return true;
    return false;
}

#endif
