// scale_list.c: see scale_list.h.
#include "config/scale_list.h"

#include "config/config_internal.h"

#include <string.h>

enum { MAX_SIDE = 16384 };

static dt_status scale_list_fail_item(const dt_cnode *n, const char *expected) {
    return dt_fail(DT_E_USAGE, "%s: model.scales: expected %s", dt_cnode_where(n), expected);
}

static dt_status read_side(dt_scale_item *s, const dt_cnode *n) {
    int64_t side;
    if (n->kind != DT_C_SCALAR || !dt_config_parse_int(n->text, &side) || side < 1 || side > MAX_SIDE)
        return scale_list_fail_item(n, "a side in pixels, or a map such as {side: 112, from: 2 epochs}");
    s->side = (int)side;
    return DT_OK;
}

static dt_status scale_list_read_key(dt_scale_item *s, const char *key, const dt_cnode *n) {
    if (strcmp(key, "side") == 0) return read_side(s, n);
    if (strcmp(key, "from") != 0)
        return dt_fail(DT_E_USAGE, "%s: unknown key '%s' in model.scales; expected side or from", n->key_where, key);
    s->joins = n->kind == DT_C_SCALAR && dt_config_parse_amount(n->text, &s->from);
    return s->joins ? DT_OK : scale_list_fail_item(n, "an amount such as 500 steps, 2 epochs or 30%");
}

static dt_status scale_list_read_one(dt_scale_item *s, const dt_cnode *n) {
    *s = (dt_scale_item){0};
    if (n->kind != DT_C_MAP) return read_side(s, n);
    for (size_t i = 0; i < n->n; i++) DT_TRY(scale_list_read_key(s, n->keys[i], n->items[i]));
    return s->side ? DT_OK : scale_list_fail_item(n, "a side, as in {side: 112, from: 2 epochs}");
}

dt_status dt_scales_read(dt_scales *s, const dt_config *c) {
    const dt_cnode *list = c->model.scales;
    bool begins = false;
    s->n = 0;
    if (!list) return DT_OK;
    if (list->n < 1 || list->n > DT_MAX_SCALES)
        return dt_config_fail(c, "model.scales", "model.scales: expected 1 to %d scales, found %d", DT_MAX_SCALES,
                              (int)list->n);
    for (size_t i = 0; i < list->n; i++) {
        dt_scale_item x;
        DT_TRY(scale_list_read_one(&x, list->items[i]));
        int at = s->n++;
        for (; at > 0 && s->items[at - 1].side <= x.side; at--) {
            if (s->items[at - 1].side == x.side) return scale_list_fail_item(list->items[i], "each side once");
            s->items[at] = s->items[at - 1];
        }
        s->items[at] = x;
        begins |= !x.joins;
    }
    if (begins) return DT_OK;
    return dt_config_fail(c, "model.scales", "every scale joins later: leave out `from` of the one that begins");
}
