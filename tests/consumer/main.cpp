// SPDX-License-Identifier: MIT
// A user's C++ program: one stage on its own arrays, with handles in unique_ptr. Exits 0 only if the answer is right.
#include <qsa/qsa.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

namespace {

struct close_context {
    void operator()(qsa_context *context) const {
        qsa_close(context);
    }
};

std::unique_ptr<qsa_context, close_context> open_context() {
    qsa_context *context = nullptr;
    QSA_INIT(qsa_options, options);
    options.threads = 2;
    qsa_error error;
    if (qsa_open(&options, &context, &error)) {
        std::fprintf(stderr, "%s\n", error.message);
    }
    return std::unique_ptr<qsa_context, close_context>(context);
}

} // namespace

int main() {
    const auto context = open_context();
    if (!context) {
        return 1;
    }
    QSA_INIT(qsa_shape, shape);
    qsa_shape_qwen38_flash_next(&shape);
    // the best 512 blocks of 1,000 by scores 0, 7, 14, ... mod 1,000: those of 488 and more, and one tail cell
    const std::int64_t n = 4001, width = qsa_width(&shape, QSA_BLOCKS, n);
    std::vector<float> scores(1001);
    for (int b = 0; b < 1000; b++) {
        scores[static_cast<std::size_t>(b)] = static_cast<float>(b * 7 % 1000);
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(width));
    std::int64_t count = 0;
    QSA_INIT(qsa_select_args, args);
    args.scores = scores.data();
    args.score_stride = 1001;
    args.rows = 1;
    args.n = &n;
    args.ids = ids.data();
    args.id_stride = width;
    args.n_ids = &count;
    qsa_error error;
    if (qsa_select(context.get(), &shape, &args, &error)) {
        std::fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    std::size_t at = 0;
    long long sum = 0;
    for (std::int32_t b = 0; b < 1000; b++) {
        for (std::int32_t c = 4 * b; b * 7 % 1000 >= 488 && c < 4 * b + 4; c++) {
            if (at >= ids.size() || ids[at] != c) {
                return 1;
            }
            sum += c;
            at++;
        }
    }
    if (count != 2049 || at != 2048 || ids.back() != 4000) {
        return 1;
    }
    // and a rotation of pair 0 by one radian
    float row[32][2];
    if (qsa_rope_row(nullptr, 1, row[0], nullptr) || std::fabs(row[0][0] - std::cos(1.0f)) > 1e-6f) {
        return 1;
    }
    std::printf("qsa %s, C++: checksum %lld\n", qsa_version(), sum);
    return 0;
}
