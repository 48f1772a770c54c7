/* SPDX-License-Identifier: MIT */
#include "picture.h"

#include <string.h>

enum { LEFT = 96, TOP = 76, WIDTH = 720, BOTTOM = 78, RIGHT = 24, LEVELS = 4 };

void picture_start(picture *p, int64_t rows, int64_t cells) {
    memset(p, 0, sizeof *p);
    p->rows = rows;
    p->cells = cells;
    p->columns = cells < PICTURE_COLUMNS ? cells : PICTURE_COLUMNS;
    p->strips = rows < PICTURE_STRIPS ? rows : PICTURE_STRIPS;
}

void picture_add(picture *p, int64_t row, int64_t n, const int32_t *ids, int64_t count) {
    int64_t strip = row * p->strips / p->rows;
    p->last_n[strip] = n;
    for (int64_t i = 0; i < count; i++) {
        p->read[strip][ids[i] * p->columns / p->cells]++;
    }
    for (int64_t c = 0; c < n; c++) {
        p->visible[strip][c * p->columns / p->cells]++;
    }
}

/* 0 where nothing was read, up to LEVELS where all was; -1 where no cells are. */
static int level_of(const picture *p, int64_t strip, int64_t column) {
    int64_t read = p->read[strip][column], visible = p->visible[strip][column];
    return visible ? (int)((read * LEVELS + visible - 1) / visible) : -1;
}

/* ------------------------------------------------------------------------------------------------ SVG */

static void print_text(FILE *file, const char *text) {
    for (; *text; text++) {
        const char *entity = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
        if (entity) {
            fputs(entity, file);
        } else {
            fputc((unsigned char)*text < ' ' ? '?' : *text, file);
        }
    }
}

static void print_style(FILE *file) {
    fputs("<style>\n"
          ".page{fill:#ffffff}.ink{fill:#1c2733}.dim{fill:#5b6875}.none{stroke:#e6eaee}.none-box{fill:#e6eaee}\n"
          ".read{stroke:#0b62c4}.read-box{fill:#0b62c4}.axis{stroke:#8793a0}\n"
          "text{font:12px system-ui,'DejaVu Sans',sans-serif}.title{font-size:16px;font-weight:600}\n"
          "@media (prefers-color-scheme:dark){\n"
          ".page{fill:#12171d}.ink{fill:#e8edf2}.dim{fill:#9aa7b4}.none{stroke:#262f39}.none-box{fill:#262f39}\n"
          ".read{stroke:#62b0ff}.read-box{fill:#62b0ff}.axis{stroke:#61707f}}\n"
          "</style>\n",
          file);
}

/* Runs of columns of one level (0: of all that exist), as strokes one strip high. */
static void print_level(FILE *file, const picture *p, int level) {
    static const char *const opacity[] = {"1", ".35", ".55", ".78", "1"};
    fprintf(file, "<path class=\"%s\" stroke-opacity=\"%s\" d=\"", level ? "read" : "none", opacity[level]);
    for (int64_t y = 0; y < p->strips; y++) {
        int64_t pen = -1;
        for (int64_t x = 0, end; x < p->columns; x = end) {
            int inside = level ? level_of(p, y, x) == level : level_of(p, y, x) >= 0;
            for (end = x + 1; end < p->columns && inside; end++) {
                if (level ? level_of(p, y, end) != level : level_of(p, y, end) < 0) {
                    break;
                }
            }
            if (inside && pen < 0) {
                fprintf(file, "M%lld %lldh%lld", (long long)x, (long long)y, (long long)(end - x));
            } else if (inside) {
                fprintf(file, "m%lld 0h%lld", (long long)(x - pen), (long long)(end - x));
            }
            pen = inside ? end : pen;
        }
    }
    fputs("\"/>\n", file);
}

static void print_row_labels(FILE *file, const picture *p, int strip_height) {
    int64_t every = (16 + strip_height - 1) / strip_height;
    for (int64_t y = 0; y < p->strips; y += every) {
        fprintf(file, "<text class=\"dim\" x=\"%d\" y=\"%lld\" text-anchor=\"end\">%lld</text>\n", LEFT - 8,
                (long long)(TOP + y * strip_height + strip_height / 2 + 4), (long long)p->last_n[y]);
    }
}

static void print_cell_axis(FILE *file, const picture *p, int y) {
    enum { TICKS = 4 };
    int width = WIDTH - LEFT - RIGHT;
    for (int i = 0; i <= TICKS; i++) {
        int64_t cell = (p->cells - 1) * i / TICKS;
        int x = LEFT + width * i / TICKS;
        fprintf(file,
                "<path class=\"axis\" d=\"M%d %dv5\"/>\n<text class=\"dim\" x=\"%d\" y=\"%d\" "
                "text-anchor=\"middle\">%lld</text>\n",
                x, y, x, y + 18, (long long)cell);
    }
    fprintf(file, "<text class=\"ink\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">cell of the context</text>\n",
            LEFT + width / 2, y + 36);
}

static void print_legend(FILE *file, int y) {
    static const char *const words[] = {"none", "to 25 %", "to 50 %", "to 75 %", "to 100 %"};
    static const char *const opacity[] = {"1", ".35", ".55", ".78", "1"};
    fprintf(file, "<text class=\"dim\" x=\"%d\" y=\"%d\">of a column's cells, read:</text>\n", LEFT, y);
    for (int i = 0; i <= LEVELS; i++) {
        int x = LEFT + 170 + i * 84;
        fprintf(file, "<rect class=\"none-box\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/>\n", x, y - 11);
        if (i) {
            fprintf(file,
                    "<rect class=\"read-box\" fill-opacity=\"%s\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/>\n",
                    opacity[i], x, y - 11);
        }
        fprintf(file, "<text class=\"ink\" x=\"%d\" y=\"%d\">%s</text>\n", x + 20, y, words[i]);
    }
}

int picture_print(FILE *file, const picture *p, const char *title) {
    int strip_height = p->strips <= 12 ? 24 : p->strips <= 24 ? 16 : 12;
    int plot = (int)p->strips * strip_height, height = TOP + plot + BOTTOM;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    print_text(file, title);
    fputs("</title>\n", file);
    print_style(file);
    fprintf(file,
            "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n<text class=\"ink title\" x=\"24\" y=\"28\">Cells that "
            "each row reads</text>\n",
            WIDTH, height);
    fputs("<text class=\"dim\" x=\"24\" y=\"48\">", file);
    print_text(file, title);
    fprintf(file, "</text>\n<text class=\"ink\" x=\"%d\" y=\"%d\" text-anchor=\"end\">row of n cells</text>\n",
            LEFT - 8, TOP - 8);
    fprintf(file,
            "<g transform=\"translate(%d %g) scale(%g %d)\" fill=\"none\" stroke-width=\".88\" "
            "shape-rendering=\"crispEdges\">\n",
            LEFT, TOP + strip_height / 2.0, (double)(WIDTH - LEFT - RIGHT) / (double)p->columns, strip_height);
    for (int level = 0; level <= LEVELS; level++) {
        print_level(file, p, level);
    }
    fputs("</g>\n", file);
    print_row_labels(file, p, strip_height);
    print_cell_axis(file, p, TOP + plot);
    print_legend(file, TOP + plot + 62);
    fputs("</svg>\n", file);
    return fflush(file) || ferror(file) ? -1 : 0;
}
