// test_config.c: the table's types and defaults, every kind of mistake with its place and advice, the
// dump's round trip, the numeric difference, and garbage that must be answered within the second.
#include "base/io.h"
#include "base/os.h"
#include "config/config.h"
#include "config/config_internal.h"
#include "config/param_groups.h"
#include "config/words.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char minimal[] = "run: {name: r}\n"
                              "data: {path: d.lmdb}\n"
                              "model: {name: fusion}\n"
                              "train: {global_batch: 32, micro_batch: 4}\n";

static const char full[] =
    "run:   {name: fusion, seed: 18446744073, reproducible: elastic, grace: 500ms}\n"
    "device: {threads: 2}\n"
    "data:\n"
    "  path: [a.lmdb, 'b-{000000..000003}.tar', 'a: \"b\" \\\\', \"\\u2028\\x01é~\", '1', ' x']\n"
    "  view: {pairs: {fields: [finger, iris], within: subject}}\n"
    "  fields:\n"
    "    iris:   {kind: image, channels: 3, size: [240, 320], normalize: imagenet}\n"
    "    finger: {kind: image, channels: 1, size: 64, normalize: {mean: [0.5], std: 0.25}}\n"
    "    subject: {kind: class, classes: 45}\n"
    "  split: {unit: record, stratify: subject, val: 0.1, test: 0.2}\n"
    "  augment: {finger: [{rotate: 10}, {shift: 0.05}], iris: [{flip: horizontal}]}\n"
    "model: {name: fusion, fusion: concat}\n"
    "train:\n"
    "  global_batch: 32\n"
    "  micro_batch: 4\n"
    "  optimizer: {name: adamw, lr: 1.0e-3}\n"
    "  schedule: {name: step, warmup: 5%, every: 12}\n"
    "  clip_norm: 1.0\n"
    "eval: {every: 2 epochs, metrics: [accuracy, top5]}\n"
    "checkpoint: {async: false}\n";

static dt_config *parse(const char *text, const char *override) {
    dt_config *c = NULL;
    must(dt_config_parse(&c, "f.yaml", text, strlen(text), &override, override ? 1 : 0));
    return c;
}

static void expect_error(const char *text, const char *override, const char *want) {
    dt_config *c = NULL;
    dt_status st = dt_config_parse(&c, "f.yaml", text, strlen(text), &override, override ? 1 : 0);
    assert_null(c);
    assert_int_equal(st, DT_E_USAGE);
    if (!strstr(dt_error_message(), want)) fail_msg("wanted '%s', got '%s'", want, dt_error_message());
    assert_null(strchr(dt_error_message(), '\n'));
}

TEST(test_listen) {
    dt_listen l;
    dt_config *c = parse(full, NULL);
    must(dt_listen_read(&l, c));
    assert_int_equal(ntohl(l.v4.sin_addr.s_addr), INADDR_LOOPBACK); // nobody else unless asked for
    assert_int_equal(dt_listen_port(&l), 9464);
    dt_config_destroy(c);
    c = parse(full, "metrics.listen=\"[::]:9500\"");
    must(dt_listen_read(&l, c));
    assert_true(l.any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&l.v6.sin6_addr));
    assert_int_equal(dt_listen_port(&l), 9500);
    dt_config_destroy(c);
}

static void expect_override_error(const char *override, const char *want) {
    expect_error(full, override, want);
}

// Each key that takes auto, in quotes, too, as a sweep's script or JSON writes it.
TEST(test_auto_in_quotes) {
    static const char *const forms[] = {"%s=auto", "%s=\"auto\"", "%s='auto'"};
    const char *fields = "data.fields.iris.";
    size_t n, n_seen = 0;
    const dt_config_key *keys = dt_config_keys(&n);
    for (size_t k = 0; k < n; k++) {
        char path[128], override[160];
        const char *star = strstr(keys[k].path, "data.fields.*.");
        if (strncmp(keys[k].range, "auto", 4) != 0 || (strchr(keys[k].path, '*') && !star)) continue;
        snprintf(path, sizeof path, "%s%s", star ? fields : keys[k].path,
                 star ? keys[k].path + strlen("data.fields.*.") : "");
        dt_status first = DT_OK;
        for (int f = 0; f < 3; f++) {
            snprintf(override, sizeof override, forms[f], path);
            const char *word = override;
            dt_config *c = NULL;
            dt_status st = dt_config_parse(&c, "f.yaml", full, sizeof full - 1, &word, 1);
            if (f == 0) first = st; // some belong to other words than the file has
            if (st != first) fail_msg("%s: %s", override, dt_error_message());
            if (st == DT_OK && !dt_config_node_is_auto(dt_config_find(c, path))) fail_msg("%s is not auto", override);
            n_seen += st == DT_OK;
            dt_config_destroy(c);
        }
    }
    assert_true(n_seen >= 3 * 12);
}

TEST(test_values) {
    dt_config *c = parse(full, NULL);
    assert_string_equal(c->run.name, "fusion");
    assert_int_equal(c->run.seed, 18446744073);
    assert_true(c->run.grace == 0.5);
    assert_int_equal(dt_answer(c->device.threads), 2);
    assert_false(c->device.threads.is_auto);
    assert_true(c->train.optimizer.lr == 1e-3);
    assert_false(c->checkpoint.async);
    dt_amount a = c->train.schedule.warmup;
    assert_true(a.value == 5 && a.unit == DT_UNIT_PERCENT);
    a = c->train.schedule.every;
    assert_true(a.value == 12 && a.unit == DT_UNIT_STEPS);
    a = c->eval.every;
    assert_true(a.value == 2 && a.unit == DT_UNIT_EPOCHS);

    const dt_cnode *paths = c->data.path;
    assert_int_equal(dt_cnode_kind(paths), DT_C_LIST);
    assert_int_equal(dt_cnode_size(paths), 6);
    assert_string_equal(dt_cnode_str(dt_cnode_item(paths, 1)), "b-{000000..000003}.tar");
    const dt_cnode *fields = dt_config_find(c, "data.fields");
    assert_int_equal(dt_cnode_size(fields), 3);
    assert_string_equal(dt_cnode_key(fields, 0), "iris"); // the file's order
    assert_string_equal(dt_cnode_where(dt_config_find(c, "data.fields.iris.size")), "f.yaml:7:46");
    const dt_cnode *augment = dt_config_find(c, "data.augment.finger");
    double shift;
    assert_true(dt_cnode_real(dt_cnode_get(dt_cnode_item(augment, 1), "shift"), &shift));
    assert_true(shift == 0.05);
    assert_null(dt_cnode_item(augment, 2));
    assert_null(dt_cnode_get(augment, "shift"));
    dt_config_destroy(c);
}

// Every number that may be auto or another word, or be left out, has a C type that says so; no two keys share a place.
TEST(test_types_of_fields) {
    size_t n;
    const dt_config_key *keys = dt_config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        const dt_config_key *k = &keys[i];
        const dt_config_form f = (dt_config_form)k->form;
        const bool number =
            k->kind == DT_T_INT || k->kind == DT_T_REAL || k->kind == DT_T_BYTES || k->kind == DT_T_TIME;
        const bool opt = f == FORM_OPT_INT || f == FORM_OPT_REAL;
        const bool is_auto = f == FORM_AUTO_INT || f == FORM_AUTO_REAL;
        char first[64] = "";
        sscanf(k->range, "%63[^|]", first);
        const bool listed = dt_config_is_instead(k->range, first);
        const bool left_out = !dt_config_has_default(k) && !dt_config_is_required(k);
        if (number && (is_auto != listed || opt != left_out)) fail_msg("%s", k->path);
        if (!number && (is_auto || opt)) fail_msg("%s", k->path);
        for (size_t j = 0; j < i; j++)
            if (keys[j].each == k->each && keys[j].offset == k->offset)
                fail_msg("%s lies where %s does", k->path, keys[j].path);
    }
}

// What the program sets is in the field, in the dump, and survives a copy.
TEST(test_set) {
    dt_config *c = parse(full, NULL), *other = parse(full, "train.epochs=77");
    dt_config_set_int(c, DT_KEY(train.micro_batch), 4);
    dt_config_set_word(c, DT_KEY(device.kind), DT_DEVICE_cpu);
    dt_config_set_text(c, DT_KEY(data.where), "auto"); // text, even if it looks like another value
    dt_config_set_same(c, DT_KEY(train.epochs), other);
    dt_config_unset(c, DT_KEY(data.split.val));
    dt_config_destroy(other);
    dt_config *copy = dt_config_copy(c);
    char *text = dt_config_dump(c), *again = dt_config_dump(copy);
    assert_string_equal(text, again);
    dt_config_destroy(c);
    must(dt_config_parse(&c, "dump", text, strlen(text), NULL, 0));
    const dt_config *const both[] = {c, copy};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dt_answer(both[i]->train.micro_batch), 4);
        assert_int_equal(both[i]->device.kind, DT_DEVICE_cpu);
        assert_string_equal(both[i]->data.where, "auto");
        assert_int_equal(both[i]->train.epochs, 77);
        assert_null(both[i]->data.split.val);
        assert_string_equal(both[i]->data.fields[0].id, "iris");
        assert_int_equal(both[i]->data.fields[0].kind, DT_FIELD_image);
        assert_null(both[i]->data.fields[both[i]->data.n_fields].id); // the defaults
        assert_int_equal(both[i]->data.fields[both[i]->data.n_fields].n_mels, 64);
    }
    free(text);
    free(again);
    dt_config_destroy(c);
    dt_config_destroy(copy);
}

TEST(test_shorthands) {
    dt_config *c = parse(full, NULL);
    const dt_cnode *size = dt_config_find(c, "data.fields.finger.size");
    assert_int_equal(dt_cnode_size(size), 2); // a square
    assert_string_equal(dt_cnode_str(dt_cnode_item(size, 1)), "64");
    const dt_cnode *std = dt_config_find(c, "data.fields.finger.normalize.std");
    assert_int_equal(dt_cnode_kind(std), DT_C_LIST);
    double v;
    assert_true(dt_cnode_real(dt_cnode_item(std, 0), &v) && v == 0.25);
    const dt_cnode *mean = dt_config_find(c, "data.fields.iris.normalize.mean");
    assert_int_equal(dt_cnode_size(mean), 3);
    assert_true(dt_cnode_real(dt_cnode_item(mean, 2), &v) && v == 0.406);
    dt_config_destroy(c);
    c = parse(minimal, NULL);
    assert_string_equal(dt_cnode_str(c->data.path), "d.lmdb");
    assert_int_equal(dt_cnode_size(c->data.path), 1);
    dt_config_destroy(c);
    c = parse(minimal, "eval.metrics=accuracy"); // the first of its words
    assert_int_equal(c->eval.metrics.n, 1);
    dt_config_destroy(c);
}

TEST(test_defaults) {
    dt_config *c = parse(minimal, NULL);
    size_t n;
    const dt_config_key *keys = dt_config_keys(&n);
    assert_true(n > 50);
    for (size_t i = 0; i < n; i++) {
        char *owners = dt_config_owners(&keys[i]);
        const bool of_some = *owners != '\0'; // test_keys_of_words
        free(owners);
        if (strstr(keys[i].path, ".*.") || of_some) continue;
        bool want = strcmp(keys[i].default_text, "none") != 0 || strcmp(keys[i].path, "data.cache") == 0 ||
                    strcmp(keys[i].path, "train.recompute") == 0 || strcmp(keys[i].path, "train.shard") == 0;
        if ((dt_config_find(c, keys[i].path) != NULL) != want) fail_msg("%s", keys[i].path);
        assert_true(strlen(keys[i].help) > 5);
    }
    assert_int_equal(c->run.seed, 42);
    assert_true(c->device.threads.is_auto);
    assert_null(dt_config_find(c, "data.split"));
    dt_config_set_int(c, DT_KEY(device.threads), 3);
    assert_int_equal(dt_answer(c->device.threads), 3);
    assert_int_equal(dt_config_fail(c, "data.split.val", "no %s", "x"), DT_E_USAGE);
    assert_string_equal(dt_error_message(), "f.yaml:2:7: no x"); // the nearest that is there
    dt_config_destroy(c);
}

// A config needs its data, fields, a model and a batch; the run is named after the file.
TEST(test_least_config) {
    static const char text[] = "data: {path: a.tar, fields: {x: {kind: image, channels: 1, size: [8, 8]}, "
                               "y: {kind: class, classes: 2}}}\n"
                               "model: {name: resnet}\ntrain: {global_batch: 8}\n";
    static const struct {
        const char *file, *name; // NULL: none follows
    } CASES[] = {{"configs/wrist.yaml", "wrist"},
                 {"7.yml", "7"},
                 {"a.b.yaml", "a.b"},
                 {"stdin", NULL},
                 {"run.json", NULL},
                 {".yaml", NULL}};
    dt_config *c;
    const char *word = "run.name=own";
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const dt_status st = dt_config_parse(&c, CASES[i].file, text, sizeof text - 1, NULL, 0);
        if (!CASES[i].name) {
            assert_int_equal(st, DT_E_USAGE);
            assert_non_null(strstr(dt_error_message(), "required key 'run.name' is missing"));
            continue;
        }
        must(st);
        assert_string_equal(c->run.name, CASES[i].name);
        assert_true(c->train.micro_batch.is_auto);
        dt_config_destroy(c);
    }
    must(dt_config_parse(&c, "f.yaml", text, sizeof text - 1, &word, 1));
    assert_string_equal(c->run.name, "own");
    dt_config_destroy(c);
    expect_error("run: 5\n", NULL, "f.yaml:1:6");
}

TEST(test_overrides) {
    const char *const overrides[] = {"train.optimizer={lr: 0.5, name: sgd}",
                                     "train.epochs=7",
                                     "train.epochs=8",
                                     "data.fields.extra={kind: real}",
                                     "data.augment.iris=[]",
                                     "data.path=x-{0..3}.tar",
                                     "train.clip_norm=null"};
    dt_config *c = NULL;
    must(dt_config_parse(&c, "f", full, sizeof full - 1, overrides, 7));
    assert_true(c->train.optimizer.lr == 0.5);
    assert_true(c->train.optimizer.weight_decay == 0.01);
    assert_int_equal(c->train.epochs, 8);
    assert_string_equal(dt_cnode_str(dt_config_find(c, "data.fields.extra.kind")), "real");
    assert_string_equal(dt_cnode_str(dt_config_find(c, "data.fields.iris.kind")), "image");
    assert_int_equal(dt_cnode_size(dt_config_find(c, "data.augment.iris")), 0);
    assert_string_equal(dt_cnode_str(c->data.path), "x-{0..3}.tar");
    assert_false(c->train.clip_norm.has);
    assert_string_equal(dt_config_where(c, DT_KEY(train.epochs)), "command line");
    dt_config_destroy(c);
    // an empty file is a config when the overrides say everything
    const char *const all[] = {"run.name=r", "data.path=d", "model.name=vit", "train.global_batch=4",
                               "train.micro_batch=2"};
    must(dt_config_parse(&c, "f", "", 0, all, 5));
    dt_config_destroy(c);
    // null stands for auto where a key has that, and an empty list keeps nothing
    const char *const more[] = {"run.name=r",          "data.path=d",
                                "model.name=vit",      "train.global_batch=4",
                                "train.micro_batch=2", "data.fields.iris={kind: image, size: 8, channels: null}",
                                "model.init_keep=[]"};
    must(dt_config_parse(&c, "f", "", 0, more, 7));
    assert_true(c->data.fields[0].channels.is_auto);
    assert_int_equal(dt_cnode_size(c->model.init_keep), 0);
    dt_config_destroy(c);
}

TEST(test_wrong_keys) {
    expect_error("run: {nam: x}\n", NULL, "f.yaml:1:7: unknown key 'run.nam'; did you mean 'run.name'?");
    expect_error("trian:\n  epochs: 3\n", NULL, "f.yaml:1:1: unknown key 'trian'; did you mean 'train'?");
    expect_error("train:\n  lr: 3\n", NULL, "f.yaml:2:3: unknown key 'train.lr'; did you mean 'train.optimizer.lr'?");
    expect_error("train: {optim: {lr: 1}}\n", NULL, "did you mean 'train.optimizer'?");
    expect_error("qqqqqqqq: 1\n", NULL, "expected one of run, device, data");
    expect_error("run.name: x\n", NULL, "f.yaml:1:1: unknown key 'run.name'; write it nested");
    expect_error("run: {name: x}\nmodel: {name: vit}\nrun: {seed: 1}\n", NULL,
                 "f.yaml:3:1: duplicate key 'run'; first at f.yaml:1:1");
    expect_error("data: {augment: {iris: [{flip: 1, flip: 2}]}}\n", NULL, "duplicate key 'flip'");
    expect_error("run: {seed: 1}\n", NULL, "f.yaml:1:1: required key 'data.path' is missing");
    expect_error("data: {path: x, fields: {a: {kind: real}}}\nmodel: {name: mlp}\n", NULL,
                 "f.yaml:1:1: required key 'train.global_batch' is missing");
    expect_override_error("data.fields.new.size=3", "f.yaml:1:1: required key 'data.fields.new.kind'");
    expect_override_error("data.fields.b!d.kind=real", "unknown key 'data.fields.b!d'");
    expect_override_error("train.batch_size=3", "unknown key 'train.batch_size'; in dtrain: train.global_batch");
    expect_override_error("gradient_clip_val=3", "in dtrain: train.clip_norm");
    expect_override_error("train.optimizer=adam", "did you mean 'train.optimizer.name=adam'?");
    expect_override_error("model=resnet", "did you mean 'model.name=resnet'?");
    expect_override_error("data.prefetch_factor=2", "in dtrain: data.prefetch");
    expect_override_error("data.pin_memory=true", "in dtrain: nothing");
    expect_override_error("data.persistent_workers=true", "in dtrain: nothing");
    expect_override_error("train.gradient_checkpointing=true", "in dtrain: train.recompute: auto");
    expect_override_error("wandb.project=x", "in dtrain: metrics.sinks");
    expect_override_error("metrics.sinks=[wandb]", "did you mean 'mlflow'?");
    expect_override_error("data.dali=true", "in dtrain: data.augment_on");
    expect_override_error("num_sanity_val_steps=2", "in dtrain: nothing: dtrain check");
    expect_override_error("model.drop_rate=0.1", "in dtrain: model.dropout");
    expect_override_error("train.patience=3", "in dtrain: train.early_stop.patience");
    expect_override_error("model.arch=resnet50", "in dtrain: model.name");
    expect_override_error("train.loss=mae", "did you mean 'l1'?");
    expect_override_error("eval.metrics=[auroc]", "did you mean 'roc_auc'?");
    expect_override_error("num_classes=3", "in dtrain: data.fields.FIELD.classes");
    expect_override_error("weight_decay=3", "did you mean 'train.optimizer.weight_decay'");
    expect_override_error("train.label_smooth=3", "did you mean 'train.label_smoothing'");
    expect_override_error("train.epoch=3", "command line: unknown key 'train.epoch'; did you mean");
    expect_override_error("train..epochs=3", "is not an override");
    expect_override_error("train.epochs", "is not an override");
    expect_override_error("=3", "is not an override");
    expect_override_error("run.name.x=3", "unknown key 'run.name.x'");
    expect_override_error("data.split.tset=0.1", "did you mean 'data.split.test'?");
    expect_override_error("data.fields.iris.normalize={mena: [1]}", "expected mean or std");
}

TEST(test_bytes) {
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"4096", 4096},     {"64KiB", 65536},        {"1.5 MiB", 1572864}, {"20GB", 20000000000},
                {"2G", 2147483648}, {"1TiB", 1099511627776}, {"'16kB'", 16000},    {"0.5M", 524288}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char override[64];
        snprintf(override, sizeof override, "data.cache_size=%s", good[i].text);
        dt_config *c = parse(minimal, override);
        assert_int_equal(dt_answer(c->data.cache_size), good[i].bytes);
        dt_config_destroy(c);
    }
    expect_override_error("data.cache_size=20XB", "a size such as 500MiB");
    expect_override_error("data.cache_size=-1GB", "a size such as 500MiB");
    expect_override_error("data.cache_size=4000", "at least 4096");
    expect_override_error("data.cache_size=99999TiB", "a size such as");
    expect_override_error("data.cache=shard", "shared");
}

TEST(test_wrong_values) {
    expect_error("run: {name: x, seed: many}\n", NULL,
                 "f.yaml:1:22: run.seed is 'many'; expected a whole number of at least 0");
    expect_override_error("train.epochs=0", "expected a whole number in 1..1000000");
    expect_override_error("train.epochs=1000001", "expected a whole number in 1..1000000");
    expect_override_error("train.epochs=1.0", "expected a whole number");
    expect_override_error("train.epochs='3'", "is the text '3'");
    expect_override_error("train.epochs=", "is empty");
    expect_override_error("train.epochs=[3]", "is a list");
    expect_override_error("train.epochs={a: 3}", "is a map");
    expect_override_error("train.epochs=auto", "train.epochs is 'auto'");
    expect_override_error("device.threads=auot", "expected a whole number in 1..1024, or auto");
    expect_override_error("eval.threshold=auto", "is 'auto'; expected a number in 0..1, or f1");
    expect_override_error("eval.threshold=0..1", "expected a number in 0..1, or f1");
    expect_override_error("run.seed=99999999999999999999", "expected a whole number");
    expect_override_error("train.optimizer.lr=1e999", "expected a number");
    expect_override_error("train.optimizer.lr=.nan", "expected a number");
    expect_override_error("train.optimizer.lr=0x10", "expected a number");
    expect_override_error("train.optimizer.beta1=1", "in 0..0.999999");
    expect_override_error("train.optimizer.eps=0", "in 1e-30..1");
    expect_override_error("train.optimizer.lr=1e38", "in 0..1e+30");
    expect_override_error("train.schedule.every=0", "amount above 0");
    expect_override_error("train.optimizer.name=lamp", "; did you mean 'lamb'?");
    expect_override_error("checkpoint.async=yes", "expected true or false");
    expect_override_error("run.grace=10x", "expected a time");
    expect_override_error("run.grace=-1s", "expected a time");
    expect_override_error("eval.every=1.5 steps", "expected an amount");
    expect_override_error("eval.every=-1", "expected an amount");
    expect_override_error("eval.every=101%", "expected an amount");
    expect_override_error("data.fields.iris.size=[1,2,3]", "expected [height, width]");
    expect_override_error("data.fields.iris.size=0", "in 1..16384");
    expect_override_error("data.fields.iris.normalize={mean: [1, 2]}", "expected 3 (channels)");
    expect_override_error("data.fields.iris.normalize={std: [0]}", "above 0");
    expect_override_error("data.fields.iris.normalize=imagenot", "or imagenet");
    expect_override_error("data.path=[]", "expected a path, or a list of paths");
    expect_override_error("data.path=[[a]]", "expected a path, or a list of paths");
    expect_override_error("data.path=[{path: a, wieght: 2}]", "expected path, weight, name");
    expect_override_error("data.path=[{path: a, weight: 0}]", "a number above 0");
    expect_override_error("data.path=[{weight: 2}]", "expected a path, or a list of paths");
    expect_override_error("metrics.sinks=[jsnol]", "did you mean 'jsonl'?");
    expect_override_error("train.optimizer=3", "expected a map of keys; expected one of name, lr");
    expect_override_error("train.micro_batch=5", "divisor of train.global_batch");
    expect_override_error("train.micro_batch=4294967296", "1..1000000"); // 0 in 32 bits
    expect_override_error("train.global_batch=8589934592", "1..1000000000");
    expect_override_error("run.name=a/b", "expected a name for a directory");
    expect_override_error("run.name=..", "expected a name for a directory");
    static const char *const no_listen[] = {"9464",       "127.0.0.1",   "localhost:9464",  "[::1:9464",
                                            "::1:9464",   "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:+9",
                                            "\"[]:9464\""};
    for (size_t i = 0; i < sizeof no_listen / sizeof *no_listen; i++) {
        char override[64];
        snprintf(override, sizeof override, "metrics.listen=%s", no_listen[i]);
        expect_override_error(override, i == 3 ? "metrics.listen" : "expected ADDRESS:PORT");
    }
}

// A key that only some words of the key beside it read (optimizers.def, schedules.def, field_kinds.def,
// models.def).
TEST(test_keys_of_words) {
    expect_override_error("train.optimizer.nesterov=true",
                          "command line: train.optimizer.nesterov is a key of sgd, lars, but "
                          "train.optimizer.name is adamw");
    expect_override_error("train.schedule.patience=3", "command line: train.schedule.patience is a key of plateau, but "
                                                       "train.schedule.name is step");
    expect_override_error("data.fields.iris.n_mels=4",
                          "data.fields.iris.n_mels is a key of audio, but data.fields.iris.kind is "
                          "image");
    expect_error("run: {name: x}\n"
                 "data: {path: y}\n"
                 "model: {name: fusion}\n"
                 "train: {global_batch: 8, micro_batch: 4, optimizer: {name: adamw,\n"
                 "  momentum: 0.9}}\n",
                 NULL,
                 "f.yaml:5:3: train.optimizer.momentum is a key of sgd, lars, but "
                 "train.optimizer.name is adamw");
    expect_override_error("model.depth=18",
                          "model.depth is a key of resnet, lens_multiscale, but model.name is fusion");
    expect_override_error("model={name: vit}", "f.yaml:12:23: model.fusion is a key of fusion, but model.name is vit; "
                                               "leave it out: model.fusion=");
    expect_override_error("model={name: resnet, fusion: , depth: 19}", "expected one of 10, 18, 34, 50");
    dt_config *c = parse(full, "train.optimizer={name: sgd}");
    assert_null(dt_config_find(c, "train.optimizer.beta1"));
    assert_true(c->train.optimizer.beta1 == 0.9); // of another word: its default
    assert_true(c->train.optimizer.momentum == 0.9);
    char *text = dt_config_dump(c);
    assert_null(strstr(text, "beta1"));
    assert_non_null(strstr(text, "nesterov: false"));
    free(text);
    dt_config_destroy(c);
    c = parse(full, "model={name: resnet, fusion: , depth: 50}");
    assert_int_equal(c->model.name, DT_MODEL_resnet);
    assert_int_equal(c->model.backbone.depth, DT_DEPTH_50);
    assert_null(dt_config_find(c, "model.fusion"));
    dt_config_destroy(c);
}

TEST(test_not_yaml) {
    expect_error("run: [1\n", NULL, "f.yaml:2:1: not YAML");
    expect_error("a:\n\tb: 1\n", NULL, "f.yaml:2:1: not YAML");
    expect_error("run: \xff\n", NULL, "f.yaml:1:6: not YAML");
    expect_error("just text\n", NULL, "f.yaml:1:1: not a config");
    expect_error("- 1\n", NULL, "not a config");
    expect_error("run: &a {name: x}\n", NULL, "f.yaml:1:6: anchors");
    expect_error("run: *a\n", NULL, "f.yaml:1:6: anchors");
    expect_error("run: !!map {name: x}\n", NULL, "f.yaml:1:6: tags");
    expect_error("run: {name: x}\n---\nrun: {name: y}\n", NULL, "f.yaml:2:1: a second document");
    expect_error("? {a: 1}\n: x\n", NULL, "cannot be a key");
    expect_error("'': x\n", NULL, "an empty key");
    expect_error("run: {name: \"a\\0b\"}\n", NULL, "a NUL character inside text");
    expect_override_error("train.epochs=[1", "override train.epochs: command line: not YAML");
    dt_config *c;
    const char nul[] = "run: {name: x}\0 more";
    must_fail(DT_E_USAGE, "f:1:15: a NUL byte", dt_config_parse(&c, "f", nul, sizeof nul - 1, NULL, 0));
    must_fail(DT_E_USAGE, "/nonexistent/x.yaml: cannot open", dt_config_load(&c, "/nonexistent/x.yaml", NULL, 0));
    assert_int_equal(dt_config_load(&c, "/", NULL, 0), DT_E_USAGE);
    assert_int_equal(dt_config_load(&c, "/dev/zero", NULL, 0), DT_E_USAGE); // endless
}

// A mebibyte of each of these is answered in far less than a second (measured: under 0.1 s).
TEST(test_garbage_is_fast) {
    static const struct {
        const char *head, *unit;
    } cases[] = {{"", "["},
                 {"a: ", "{a: ["},
                 {"", "- "},
                 {"", "? "},
                 {"", "? - "},
                 {"", "'"},
                 {"a: \"", "x"},
                 {"a: [", "&a x, "},
                 {"", "%TAG !a! b\n"},
                 {"", "%TAG !a! b\xC2\x85"},
                 {"", "%TAG !a! b\xE2\x80\xA8"},
                 {"a: [", "\"]\","},
                 {"a: [", "1,"},
                 {"a: [", "{b: 1},"},
                 {"", "-\n"},
                 {"", "k"},
                 {"{", "\"k\" "},
                 {"", ": "},
                 {"a: |\n", " x\n"},
                 {"", "\xEF\xBB\xBF"},
                 {"", "[]"},
                 {"", "...\n"},
                 {"", "\n"}};
    size_t cap = 1 << 20;
    char *text = malloc(cap + 16);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].head), unit = strlen(cases[i].unit);
        memcpy(text, cases[i].head, n);
        for (; n + unit <= cap; n += unit) memcpy(text + n, cases[i].unit, unit);
        dt_config *c = NULL;
        clock_t start = clock(); // the processor's: waiting for one does not count
        assert_int_equal(dt_config_parse(&c, "f", text, n, NULL, 0), DT_E_USAGE);
        // 0.3 s with sanitizers; what takes squares takes minutes
        double took_s = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (took_s > 5) fail_msg("%s took %.1f s", cases[i].unit, took_s);
        assert_in_range(strlen(dt_error_message()), 10, 400);
    }
    dt_config *c = NULL;
    memset(text, ' ', cap + 1);
    must_fail(DT_E_USAGE, "at most", dt_config_parse(&c, "f", text, cap + 1, NULL, 0));
    free(text);
}

// 64 levels are fine, 65 are not; in blocks as in brackets.
TEST(test_depth) {
    for (int levels = 60; levels < 70; levels++) {
        char text[8192], *p;
        p = text + sprintf(text, "run: {name: r}\nmodel: {name: vit}\n"
                                 "train: {global_batch: 1, micro_batch: 1}\n"
                                 "data: {path: d, augment: {iris: ");
        for (int i = 2; i < levels; i++) *p++ = '[';
        for (int i = 2; i < levels; i++) *p++ = ']';
        strcpy(p, "}}\n");
        dt_config *c = NULL;
        dt_status st = dt_config_parse(&c, "f", text, strlen(text), NULL, 0);
        assert_int_equal(st, levels <= 64 ? DT_OK : DT_E_USAGE);
        dt_config_destroy(c);
    }
}

TEST(test_dump_round_trip) {
    const char *texts[] = {minimal, full};
    for (int i = 0; i < 2; i++) {
        dt_config *a = parse(texts[i], NULL);
        char *first = dt_config_dump(a);
        dt_config *b = parse(first, NULL);
        char *second = dt_config_dump(b);
        assert_string_equal(first, second);
        const char *was, *is;
        assert_null(dt_config_first_difference(a, b, DT_KEY_NUMERIC, &was, &is));
        const dt_cnode *x = a->data.path, *y = b->data.path;
        assert_int_equal(dt_cnode_size(x), dt_cnode_size(y));
        for (size_t k = 0; k < dt_cnode_size(x); k++)
            assert_string_equal(dt_cnode_str(dt_cnode_item(x, k)), dt_cnode_str(dt_cnode_item(y, k)));
        double v; // a quoted number stays text
        if (i == 1) assert_false(dt_cnode_real(dt_cnode_item(y, 4), &v));
        assert_ptr_equal(strstr(first, "run:"), first); // the table's order
        assert_true(strstr(first, "data:") < strstr(first, "train:"));
        free(first);
        free(second);
        dt_config_destroy(a);
        dt_config_destroy(b);
    }
}

static bool is_other(const char *override) {
    dt_config *a = parse(full, NULL), *b = parse(full, override);
    const char *was, *is;
    bool other = dt_config_first_difference(a, b, DT_KEY_NUMERIC, &was, &is) != NULL;
    dt_config_destroy(a);
    dt_config_destroy(b);
    return other;
}

TEST(test_same_numbers) {
    const char *same[] = {"train.optimizer.lr=0.001",
                          "train.optimizer.lr=1e-3",
                          "train.schedule.every=12 steps",
                          "eval.every=\"2 epoch\"",
                          "run.name=other",
                          "run.grace=1h",
                          "data.workers=9",
                          "train.optimizer.weight_decay=0.0100",
                          "data.fields.finger.size=[64, 64]",
                          "data.fields.finger.normalize={std: [0.25], mean: 0.50}"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (is_other(same[i])) fail_msg("%s differs", same[i]);
    const char *other[] = {"train.optimizer.lr=0.0011",
                           "run.seed=18446744074",
                           "train.schedule.every=12 epochs",
                           "data.augment.iris=[]",
                           "data.augment.finger=[{shift: 0.05}, {rotate: 10}]",
                           "data.split=null",
                           "data.fields.more={kind: real}",
                           "train.clip_norm=null",
                           "run.seed=18446744073709551",
                           "data.path=[b, a]"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!is_other(other[i])) fail_msg("%s does not differ", other[i]);
}

TEST(test_difference) {
    dt_config *a = parse(full, NULL), *b = parse(full, "train.optimizer.lr=2e-3");
    const char *x, *y;
    assert_string_equal(dt_config_first_difference(a, b, DT_KEY_NUMERIC, &x, &y), "train.optimizer.lr");
    assert_string_equal(x, "1.0e-3");
    assert_string_equal(y, "2e-3");
    assert_null(dt_config_first_difference(a, a, DT_KEY_NUMERIC, &x, &y));
    dt_config_destroy(b);
    b = parse(full, "data.fields.more={kind: real}"); // a name that one side lacks
    assert_string_equal(dt_config_first_difference(a, b, DT_KEY_NUMERIC, &x, &y), "data.fields.more.kind");
    assert_string_equal(x, "not set");
    assert_string_equal(dt_config_first_difference(b, a, DT_KEY_NUMERIC, &x, &y), "data.fields.more.kind");
    dt_config_destroy(b);
    b = parse(full, "device.threads=auto"); // asks for what the run has
    assert_null(dt_config_first_difference(a, b, DT_KEY_NUMERIC, &x, &y));
    assert_string_equal(dt_config_first_difference(b, a, DT_KEY_NUMERIC, &x, &y), "device.threads");
    dt_config_destroy(a);
    dt_config_destroy(b);
}

// Paths of records may change; names, weights, number and order of the sets may not.
TEST(test_moved_paths) {
    static const struct {
        const char *was, *is;
        bool moved;
    } cases[] = {
        {"a.tar", "/x/a.tar", true},
        {"a.tar", "a.tar", false},
        {"a.tar", "[b.tar]", true}, // a list of one
        {"[a.tar, b.tar]", "[/x/a.tar, /x/b.tar]", true},
        {"[a.tar, b.tar]", "[/x/a.tar]", false},
        {"[{path: a, weight: 2, name: l}, b]", "[{path: c, weight: 2.0, name: l}, d]", true},
        {"[{path: a, weight: 2, name: l}, b]", "[{path: c, weight: 3, name: l}, d]", false},
        {"[{path: a, weight: 2, name: l}, b]", "[{path: c, weight: 2, name: r}, d]", false},
        {"[{path: a, weight: 2}, b]", "[{path: c, name: l}, d]", false},
        {"[{path: a, weight: 2}, b]", "[{path: c, weight: 2, name: l}, d]", false},
        {"[{path: a, weight: 2}, b]", "[b, {path: a, weight: 2}]", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char was[128], is[128];
        snprintf(was, sizeof was, "data.path=%s", cases[i].was);
        snprintf(is, sizeof is, "data.path=%s", cases[i].is);
        dt_config *a = parse(full, was), *b = parse(full, is);
        if (dt_config_moved(a, b, "data.path") != cases[i].moved) fail_msg("%s -> %s: not %d", was, is, cases[i].moved);
        dt_config_destroy(a);
        dt_config_destroy(b);
    }
}

// Runs of earlier versions have the key in config.yaml and in checkpoints.
TEST(test_key_that_is_gone) {
    expect_override_error("device={hold_input: true}", "unknown key 'device.hold_input'; in dtrain: nothing");
    dt_config *c = parse(minimal, "device={hold_input: false, threads: 2}");
    char *dump = dt_config_dump(c);
    assert_non_null(strstr(dump, "threads: 2"));
    assert_null(strstr(dump, "hold_input"));
    free(dump);
    dt_config_destroy(c);
}

TEST(test_load_file) {
    char path[] = "/tmp/test_config.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    must(dt_io_write(fd, path, "\xef\xbb\xbf", 3)); // as editors on Windows begin a file
    must(dt_io_write(fd, path, minimal, sizeof minimal - 1));
    must(dt_io_close(fd, path));
    dt_config *c = NULL;
    const char *override = "run.name=q";
    must(dt_config_load(&c, path, &override, 1));
    assert_string_equal(c->run.name, "q");
    dt_config_destroy(c);
    must(dt_io_unlink(path));
}

TEST_MAIN(NULL, NULL)
