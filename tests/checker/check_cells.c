/* SPDX-License-Identifier: MIT */
/* Appending: each codec both ways, block keys, angles. What is encoded is compared as bytes: a NaN's bits count there, too. */
#include "checker.h"

#include "runtime/numerics.h"

#include <stdio.h>

static struct cell_state {
    qsa_type type;
    int64_t groups, position, pairs;
    const float *x, *turn, *raw[QSA_BLOCK_MAX];
    const void *encoded;
    const uint16_t *scales;
    const double *frequency;
    qsa_block_key_recipe recipe;
    guarded guard[4]; /* of the inputs, as a draw places them */
} state;

static void *place(dice *d, int i, int64_t bytes, size_t align) {
    if (!state.guard[i].base) {
        guarded_open(&state.guard[i], 1 << 17);
    }
    return guarded_place(&state.guard[i], d, (size_t)bytes, align);
}

static int inputs_intact(void) {
    int intact = 1;
    for (int i = 0; i < 4; i++) {
        intact = intact && (!state.guard[i].base || guarded_intact(&state.guard[i]));
    }
    return intact;
}

/* ------------------------------------------------------------------------------------------------ codecs */

/* Some halves are ties between two values of a narrower type, or a bit beside one; some NaNs carry a payload. */
static void fill_edges(dice *d, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)dice_bits(d);
        switch (dice_range(d, 0, 5)) {
        case 0: bits = (bits & 0xffff0000u) | 0x8000u; break;
        case 1: bits = ((bits & 0xffffe000u) | 0x1000u) + (uint32_t)dice_range(d, -1, 1); break;
        case 2: bits = (bits & 0x807fffffu) | (uint32_t)dice_range(d, 100, 145) << 23; break; /* around the halves' range */
        case 3: bits = (bits & 0x80ffffffu) | 0x7f000000u; break;
        default: break;
        }
        x[i] = qsa_from_bits(bits);
    }
}

static flavour draw_groups(dice *d, case_info *info, qsa_type type) {
    state.type = type;
    state.groups = info->typical ? 16 : dice_range(d, 1, 33);
    return info->typical ? PLAIN : dice_flavour(d);
}

static void draw_encode(dice *d, case_info *info, qsa_type type) {
    flavour f = draw_groups(d, info, type);
    int64_t values = state.groups * 64;
    float *x = place(d, 0, values * 4, 4);
    int edges = !info->typical && dice_one_in(d, 4);
    if (edges) {
        fill_edges(d, x, values);
    } else {
        fill_f32(d, f, x, values);
    }
    state.x = x;
    info->element = type == QSA_I8_G64 ? ELEMENT_BYTE : ELEMENT_I32; /* pairs of halves */
    info->count = type == QSA_I8_G64 ? values + state.groups * 2 : values / 2;
    snprintf(info->text, sizeof info->text, "%lld groups, %s", (long long)state.groups, edges ? "edges" : flavour_name(f));
}

static void draw_encode_f16(dice *d, case_info *info) {
    draw_encode(d, info, QSA_F16);
}
static void draw_encode_bf16(dice *d, case_info *info) {
    draw_encode(d, info, QSA_BF16);
}
static void draw_encode_i8(dice *d, case_info *info) {
    draw_encode(d, info, QSA_I8_G64);
}

/* int8: the scales, then the values. */
static void run_encode(const kernel_set *set, void *out) {
    int64_t scales = state.type == QSA_I8_G64 ? state.groups * 2 : 0;
    uint16_t made[33];
    set->cell.encode[state.type](state.x, state.groups, (char *)out + scales, scales ? made : NULL);
    memcpy(out, made, (size_t)scales);
}

/* Every bit pattern is a value of its type. */
static void draw_decode(dice *d, case_info *info, qsa_type type) {
    flavour f = draw_groups(d, info, type);
    int64_t values = state.groups * 64, bytes = values * qsa_kv_element(type);
    unsigned char *encoded = place(d, 0, bytes, (size_t)qsa_kv_element(type));
    uint16_t *scales = place(d, 1, state.groups * 2, 2);
    for (int64_t i = 0; i < bytes; i++) {
        encoded[i] = (unsigned char)dice_bits(d);
    }
    fill_f16(d, f, scales, state.groups);
    state.encoded = encoded;
    state.scales = type == QSA_I8_G64 ? scales : NULL;
    info->element = ELEMENT_F32;
    info->count = values;
    snprintf(info->text, sizeof info->text, "%lld groups, scales %s", (long long)state.groups, flavour_name(f));
}

static void draw_decode_f16(dice *d, case_info *info) {
    draw_decode(d, info, QSA_F16);
}
static void draw_decode_bf16(dice *d, case_info *info) {
    draw_decode(d, info, QSA_BF16);
}
static void draw_decode_i8(dice *d, case_info *info) {
    draw_decode(d, info, QSA_I8_G64);
}

static void run_decode(const kernel_set *set, void *out) {
    set->cell.decode[state.type](state.encoded, state.scales, state.groups, out);
}

/* ------------------------------------------------------------------------------------------------ block keys */

static void draw_key(dice *d, case_info *info, qsa_type type) {
    qsa_block_key_recipe *r = &state.recipe;
    *r = (qsa_block_key_recipe){.block = 4, .dim = 128, .eps = 1e-6f, .rope = {.dims = 64}, .type = type};
    if (!info->typical) {
        r->block = INT64_C(2) << dice_range(d, 0, 2);
        r->dim = 16 * dice_range(d, 1, dice_one_in(d, 4) ? 32 : 9);
        r->rope.dims = 2 * dice_range(d, 1, r->dim / 2);
        r->eps = dice_one_in(d, 4) ? 0.0f : r->eps;
    }
    flavour f = info->typical ? PLAIN : dice_flavour(d), fw = info->typical ? PLAIN : dice_flavour(d);
    float *raw = place(d, 0, r->block * r->dim * 4, 4);
    float *weight = place(d, 1, r->dim * 4, 4), *turn = place(d, 2, r->rope.dims * 4, 4);
    fill_f32(d, f, raw, r->block * r->dim);
    fill_f32(d, fw, weight, r->dim);
    fill_f32(d, PLAIN, turn, r->rope.dims);
    r->norm_weight = weight;
    state.turn = turn;
    for (int64_t i = 0; i < r->block; i++) {
        state.raw[i] = raw + (r->block - 1 - i) * r->dim; /* wherever they lie */
    }
    info->element = ELEMENT_F32;
    info->count = r->dim;
    snprintf(info->text, sizeof info->text, "%lld cells of %lld, %lld rotate, raw %s, weight %s", (long long)r->block,
             (long long)r->dim, (long long)r->rope.dims, flavour_name(f), flavour_name(fw));
}

static void draw_key_f32(dice *d, case_info *info) {
    draw_key(d, info, QSA_F32);
}
static void draw_key_bf16(dice *d, case_info *info) {
    draw_key(d, info, QSA_BF16);
}

static void run_key(const kernel_set *set, void *out) {
    set->cell.block_key(&state.recipe, state.raw, state.turn, out);
}

/* ------------------------------------------------------------------------------------------------ angles */

static void draw_angles(dice *d, case_info *info) {
    qsa_rope rope = {.size = sizeof rope, .dims = 64, .theta = 1e7};
    state.position = 131072;
    if (!info->typical) {
        rope.dims = 2 * dice_range(d, 1, 64);
        rope.theta = dice_one_in(d, 2) ? rope.theta : 1.5 + 1e6 * (double)(dice_float(d) + 1.0f);
        state.position = dice_range(d, 0, dice_one_in(d, 3) ? 20 : dice_one_in(d, 2) ? 300000 : INT32_MAX);
    }
    state.pairs = rope.dims / 2;
    double *frequency = place(d, 3, state.pairs * 8, 8);
    qsa_rope_frequencies(&rope, frequency);
    state.frequency = frequency;
    info->element = ELEMENT_F32;
    info->count = rope.dims;
    snprintf(info->text, sizeof info->text, "%lld pairs, theta %g, position %lld", (long long)state.pairs, rope.theta,
             (long long)state.position);
}

static void run_angles(const kernel_set *set, void *out) {
    set->cell.angles(state.frequency, state.pairs, state.position, out);
}

/* ------------------------------------------------------------------------------------------------ the table */

static const char *encode_f16_kernel(const kernel_set *set) {
    return set->cell.encode_name[QSA_F16];
}
static const char *encode_bf16_kernel(const kernel_set *set) {
    return set->cell.encode_name[QSA_BF16];
}
static const char *encode_i8_kernel(const kernel_set *set) {
    return set->cell.encode_name[QSA_I8_G64];
}
static const char *decode_f16_kernel(const kernel_set *set) {
    return set->cell.decode_name[QSA_F16];
}
static const char *decode_bf16_kernel(const kernel_set *set) {
    return set->cell.decode_name[QSA_BF16];
}
static const char *decode_i8_kernel(const kernel_set *set) {
    return set->cell.decode_name[QSA_I8_G64];
}
static const char *key_kernel(const kernel_set *set) {
    return set->cell.block_key_name;
}
static const char *angles_kernel(const kernel_set *set) {
    return set->cell.angles_name;
}

#define STAGE(text, kernel_of, drawn, what)                                                                                \
    {.name = (text), .trials = 400, .kernel = (kernel_of), .draw = (drawn), .run = (what), .inputs_intact = inputs_intact}

const stage cell_stages[] = {
    STAGE("encode_f16", encode_f16_kernel, draw_encode_f16, run_encode),
    STAGE("encode_bf16", encode_bf16_kernel, draw_encode_bf16, run_encode),
    STAGE("encode_i8", encode_i8_kernel, draw_encode_i8, run_encode),
    STAGE("decode_f16", decode_f16_kernel, draw_decode_f16, run_decode),
    STAGE("decode_bf16", decode_bf16_kernel, draw_decode_bf16, run_decode),
    STAGE("decode_i8", decode_i8_kernel, draw_decode_i8, run_decode),
    STAGE("block_key_f32", key_kernel, draw_key_f32, run_key),
    STAGE("block_key_bf16", key_kernel, draw_key_bf16, run_key),
    STAGE("angles", angles_kernel, draw_angles, run_angles),
    {.name = NULL},
};
