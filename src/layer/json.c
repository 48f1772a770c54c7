/* SPDX-License-Identifier: MIT */
/* The JSON reader. It never looks at a byte behind the text, and nests only as deep as a fixed stack. */
#include "layer/json.h"

#include <string.h>

qsa_json qsa_json_begin(char *text, int64_t size) {
    return (qsa_json){.text = text, .size = size};
}

int qsa_json_refuse(qsa_json *j, int64_t at, const char *reason) {
    if (!j->reason) {
        j->reason = reason;
        j->at = at;
    }
    return 0;
}

static int peek(const qsa_json *j) {
    return j->at < j->size ? (unsigned char)j->text[j->at] : -1;
}

static int skip_space(qsa_json *j) {
    int c = peek(j);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        j->at++;
        c = peek(j);
    }
    return c;
}

/* White space, then the character. */
static int expect(qsa_json *j, char c, const char *reason) {
    if (j->reason) {
        return 0;
    }
    int found = skip_space(j);
    if (found != c) {
        return qsa_json_refuse(j, j->at, found < 0 ? "the text ends too early" : reason);
    }
    j->at++;
    return 1;
}

int qsa_json_enter(qsa_json *j, char open) {
    if (!expect(j, open, open == '{' ? "expected an object" : "expected an array")) {
        return 0;
    }
    j->fresh = 1;
    return 1;
}

/* Up to the next value of a container: 1; or past its end: 0. */
static int advance(qsa_json *j, char close) {
    if (j->reason) {
        return 0;
    }
    int fresh = j->fresh;
    j->fresh = 0;
    if (skip_space(j) == close) {
        j->at++;
        return 0;
    }
    return fresh || expect(j, ',', close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
}

int qsa_json_member(qsa_json *j, const char **name) {
    if (!advance(j, '}')) {
        return 0;
    }
    *name = qsa_json_string(j);
    return *name && expect(j, ':', "expected ':'");
}

int qsa_json_element(qsa_json *j) {
    return advance(j, ']');
}

static int hex_digit(int c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four digits at j->at, or -1. */
static int32_t hex4(qsa_json *j) {
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(peek(j));
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
        j->at++;
    }
    return value;
}

/* The code point of \uXXXX, whose \u is consumed, with its second half where it has one; -1 on failure. */
static int32_t escaped_code(qsa_json *j, int64_t start) {
    int32_t code = hex4(j);
    if (code < 0) {
        qsa_json_refuse(j, start, "expected four hexadecimal digits behind \\u");
        return -1;
    }
    if (code == 0) {
        qsa_json_refuse(j, start, "a string holds \\u0000");
        return -1;
    }
    if (code < 0xd800 || code > 0xdfff) {
        return code;
    }
    if (code < 0xdc00 && j->size - j->at >= 2 && j->text[j->at] == '\\' && j->text[j->at + 1] == 'u') {
        j->at += 2;
        int32_t low = hex4(j);
        if (low >= 0xdc00 && low <= 0xdfff) {
            return 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
        }
    }
    qsa_json_refuse(j, start, "half of a surrogate pair");
    return -1;
}

/* UTF-8 of a code point at text[to]; returns the place behind it. Never longer than the escape it came from. */
static int64_t put_code(char *text, int64_t to, int32_t code) {
    static const int32_t limit[] = {0x80, 0x800, 0x10000, 0x110000};
    static const int32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    int more = 0;
    while (code >= limit[more]) {
        more++;
    }
    text[to++] = (char)(unsigned char)(lead[more] | code >> (6 * more));
    while (more-- > 0) {
        text[to++] = (char)(unsigned char)(0x80 | (code >> (6 * more) & 0x3f));
    }
    return to;
}

/* Bytes of the well-formed UTF-8 sequence at j->at, 0 if it is none. */
static int utf8_length(const qsa_json *j) {
    const unsigned char *s = (const unsigned char *)j->text + j->at;
    int64_t left = j->size - j->at;
    if (s[0] < 0x80) {
        return 1;
    }
    int length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < length) {
        return 0;
    }
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* overlong forms, surrogates, beyond U+10FFFF */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f)) {
        return 0;
    }
    return length;
}

/* The escape at j->at, to text[to]; returns the place behind it, or -1. */
static int64_t unescape(qsa_json *j, int64_t to) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    int64_t start = j->at++;
    int c = peek(j);
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (c == 'u') {
        j->at++;
        int32_t code = escaped_code(j, start);
        return code < 0 ? -1 : put_code(j->text, to, code);
    }
    if (!found) {
        qsa_json_refuse(j, start, "an escape that JSON does not have");
        return -1;
    }
    j->at++;
    j->text[to] = into[found - from];
    return to + 1;
}

const char *qsa_json_string(qsa_json *j) {
    if (!expect(j, '"', "expected a string")) {
        return NULL;
    }
    int64_t start = j->at, to = start;
    for (;;) {
        int c = peek(j);
        if (c == '"') {
            j->at++;
            j->text[to] = '\0'; /* to is at most where the quote was */
            return j->text + start;
        }
        if (c < 0x20) {
            qsa_json_refuse(j, j->at, c < 0 ? "the text ends inside a string" : "a control character in a string");
            return NULL;
        }
        if (c == '\\') {
            to = unescape(j, to);
            if (to < 0) {
                return NULL;
            }
            continue;
        }
        int length = utf8_length(j);
        if (!length) {
            qsa_json_refuse(j, j->at, "not UTF-8");
            return NULL;
        }
        while (length-- > 0) {
            j->text[to++] = j->text[j->at++];
        }
    }
}

static int is_digit(int c) {
    return c >= '0' && c <= '9';
}

/* One or more digits. */
static int skip_digits(qsa_json *j) {
    if (!is_digit(peek(j))) {
        return qsa_json_refuse(j, j->at, "expected a digit");
    }
    while (is_digit(peek(j))) {
        j->at++;
    }
    return 1;
}

static int skip_number(qsa_json *j) {
    j->at += peek(j) == '-';
    if (peek(j) == '0') {
        j->at++;
    } else if (!skip_digits(j)) {
        return 0;
    }
    if (peek(j) == '.') {
        j->at++;
        if (!skip_digits(j)) {
            return 0;
        }
    }
    if (peek(j) == 'e' || peek(j) == 'E') {
        j->at++;
        j->at += peek(j) == '+' || peek(j) == '-';
        return skip_digits(j);
    }
    return 1;
}

int qsa_json_count(qsa_json *j, int64_t *value) {
    if (j->reason) {
        return 0;
    }
    int c = skip_space(j);
    int64_t start = j->at, sum = 0;
    if (!is_digit(c)) {
        return qsa_json_refuse(j, start, c < 0 ? "the text ends too early" : "expected an integer, 0 or more");
    }
    if (!skip_number(j)) {
        return 0;
    }
    for (int64_t i = start; i < j->at; i++) {
        int digit = j->text[i] - '0';
        if (!is_digit(j->text[i])) {
            return qsa_json_refuse(j, start, "expected an integer in plain digits");
        }
        if (sum > (INT64_MAX - digit) / 10) {
            return qsa_json_refuse(j, start, "an integer above 2^63 - 1");
        }
        sum = sum * 10 + digit;
    }
    *value = sum;
    return 1;
}

static int skip_word(qsa_json *j) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        int64_t length = (int64_t)strlen(words[i]);
        if (j->size - j->at >= length && memcmp(j->text + j->at, words[i], (size_t)length) == 0) {
            j->at += length;
            return 1;
        }
    }
    return qsa_json_refuse(j, j->at, peek(j) < 0 ? "the text ends too early" : "expected a value");
}

static int skip_scalar(qsa_json *j) {
    int c = skip_space(j);
    if (c == '"') {
        return qsa_json_string(j) != NULL;
    }
    return c == '-' || is_digit(c) ? skip_number(j) : skip_word(j);
}

int qsa_json_skip(qsa_json *j) {
    char open[QSA_JSON_DEPTH];
    int depth = 0;
    if (j->reason) {
        return 0;
    }
    do {
        int c = skip_space(j);
        if (c == '{' || c == '[') {
            if (depth == QSA_JSON_DEPTH) {
                return qsa_json_refuse(j, j->at, "nested too deep");
            }
            open[depth++] = (char)c;
            qsa_json_enter(j, (char)c);
        } else if (!skip_scalar(j)) {
            return 0;
        }
        /* leave what ends here; go on to the next value of what does not */
        for (const char *name; depth > 0; depth--) {
            if (open[depth - 1] == '{' ? qsa_json_member(j, &name) : qsa_json_element(j)) {
                break;
            }
            if (j->reason) {
                return 0;
            }
        }
    } while (depth > 0);
    return 1;
}

int qsa_json_end(qsa_json *j) {
    if (j->reason) {
        return 0;
    }
    return skip_space(j) < 0 || qsa_json_refuse(j, j->at, "text behind the end");
}
