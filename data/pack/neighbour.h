// neighbour.h: sets of other names in the same folder, whose files a pack must leave alone.
#ifndef DT_DATA_NEIGHBOUR_H
#define DT_DATA_NEIGHBOUR_H

#include "pack_plan.h"

// DT_E_USAGE, naming it, where the catalog that the plan would write is of another set, or is being put
// in its place by the pack of one. list: names that this pack puts in place, each ended by a NUL, which are its
// own even where the plan does not know them; or NULL. *unreadable: a catalog is there, and whose it is
// cannot be told.
dt_status dt_neighbour_check(const dt_plan *plan, const char *list, size_t n_list,
                             bool *unreadable);
// Warns where the catalog that is about to be replaced can be read by nobody, or names data of which
// nothing is there: gone, or not there yet.
void dt_neighbour_say_replaced(const dt_plan *plan);
// Whether the list has that name.
bool dt_neighbour_is_named(const char *list, size_t n_list, const char *name);

#endif
