#include "tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"

/* Where fields lie in a block. */
struct place {
    unsigned at, length;
};
static const struct place NAME = {0, 100}, MODE = {100, 8}, UID = {108, 8}, GID = {116, 8}, SIZE = {124, 12},
                          MTIME = {136, 12}, SUM = {148, 8}, TYPE = {156, 1}, TARGET = {157, 100},
                          MAGIC = {257, 8}, PREFIX = {345, 155};

static const uint64_t MOST_SIZE = 077777777777ULL, MOST_ID = 07777777ULL;

static unsigned checksum(const uint8_t *block) {
    unsigned sum = 0;
    for (unsigned i = 0; i < BLOCK; i++) sum += i >= SUM.at && i < SUM.at + SUM.length ? ' ' : block[i];
    return sum;
}

/* ---- writing ---- */

static void put_octal(uint8_t *block, struct place place, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%0*llo", (int)place.length - 1, (unsigned long long)number);
    memcpy(block + place.at, text, place.length);
}

static void put_block(const struct member *member, const char *name, uint64_t size) {
    uint8_t block[BLOCK] = {0};
    strncpy((char *)block + NAME.at, name, NAME.length);
    strncpy((char *)block + TARGET.at, member->target, TARGET.length);
    put_octal(block, MODE, member->mode & 07777);
    put_octal(block, UID, member->uid <= MOST_ID ? member->uid : 0);
    put_octal(block, GID, member->gid <= MOST_ID ? member->gid : 0);
    put_octal(block, SIZE, size <= MOST_SIZE ? size : 0);
    put_octal(block, MTIME, member->mtime_ns > 0 ? (uint64_t)(member->mtime_ns / 1000000000) : 0);
    block[TYPE.at] = (uint8_t)member->type;
    memcpy(block + MAGIC.at, "ustar\00000", MAGIC.length);
    snprintf((char *)block + SUM.at, SUM.length, "%06o", checksum(block));
    send_bytes(block, sizeof block);
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void put_record(struct buffer *out, const char *key, const char *value) {
    size_t rest = strlen(key) + strlen(value) + 3, length = rest + 1;
    char digits[24];
    while (rest + (size_t)snprintf(digits, sizeof digits, "%zu", length) != length) length++;
    buffer_append(out, digits, strlen(digits));
    buffer_append(out, " ", 1);
    buffer_append(out, key, strlen(key));
    buffer_append(out, "=", 1);
    buffer_append(out, value, strlen(value));
    buffer_append(out, "\n", 1);
}

static void put_number_record(struct buffer *out, const char *key, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    put_record(out, key, text);
}

static void pad(uint64_t length) {
    static const uint8_t zeros[BLOCK];
    if (length % BLOCK) send_bytes(zeros, BLOCK - length % BLOCK);
}

void tar_put(const struct member *member) {
    struct buffer records = {0};
    int64_t seconds = member->mtime_ns / 1000000000, ns = member->mtime_ns % 1000000000;
    if (strlen(member->name) > NAME.length) put_record(&records, "path", member->name);
    if (strlen(member->target) > TARGET.length) put_record(&records, "linkpath", member->target);
    if (member->size > MOST_SIZE) put_number_record(&records, "size", member->size);
    if (member->uid > MOST_ID) put_number_record(&records, "uid", member->uid);
    if (member->gid > MOST_ID) put_number_record(&records, "gid", member->gid);
    if (seconds >= 0 && ns >= 0 && (ns || (uint64_t)seconds > MOST_SIZE)) {
        char time[40];
        snprintf(time, sizeof time, "%lld.%09lld", (long long)seconds, (long long)ns);
        put_record(&records, "mtime", time);
    }
    size_t length = buffer_length(&records);
    if (length) {
        struct member extended = {.type = 'x', .mode = 0644};
        put_block(&extended, "PaxHeader", length);
        send_bytes(buffer_head(&records), length);
        pad(length);
    }
    buffer_free(&records);
    put_block(member, member->name, member->size);
}

void tar_put_end(void) {
    static const uint8_t zeros[2 * BLOCK];
    send_bytes(zeros, sizeof zeros);
}

/* ---- reading ---- */

/* Octal digits, or a number in base 256 when the first bit is set. */
static bool get_number(const uint8_t *block, struct place place, uint64_t *number) {
    const uint8_t *at = block + place.at, *end = at + place.length;
    *number = 0;
    if (*at & 0x80) {
        if (*at != 0x80) return false;
        while (++at < end) {
            if (*number >> 55) return false;
            *number = *number << 8 | *at;
        }
        return true;
    }
    while (at < end && *at == ' ') at++;
    for (; at < end && *at >= '0' && *at <= '7'; at++) *number = *number << 3 | (uint64_t)(*at - '0');
    return at == end || *at == 0 || *at == ' ';
}

static void get_text(const uint8_t *block, struct place place, char *text) {
    memcpy(text, block + place.at, place.length);
    text[place.length] = 0;
}

bool tar_read(const uint8_t *block, struct member *member) {
    uint64_t sum, mode, uid, gid, mtime;
    char name[101], prefix[156];
    if (!get_number(block, SUM, &sum) || sum != checksum(block)) return false;
    if (!get_number(block, MODE, &mode) || !get_number(block, UID, &uid) || !get_number(block, GID, &gid) ||
        !get_number(block, SIZE, &member->size) || !get_number(block, MTIME, &mtime))
        return false;
    member->mode = mode & 07777;
    member->uid = (uid_t)uid;
    member->gid = (gid_t)gid;
    member->mtime_ns = (int64_t)(mtime & 0x1ffffffff) * 1000000000;
    member->type = block[TYPE.at] ? (char)block[TYPE.at] : '0';
    get_text(block, NAME, name);
    get_text(block, PREFIX, prefix);
    get_text(block, TARGET, member->target);
    bool posix = !memcmp(block + MAGIC.at, "ustar\0", 6) && *prefix;
    snprintf(member->name, sizeof member->name, posix ? "%2$s/%1$s" : "%1$s", name, prefix);
    return true;
}

static bool set_text(char *text, const char *value, size_t length) {
    if (length >= PATH_MAX || memchr(value, 0, length)) return false;
    memcpy(text, value, length);
    text[length] = 0;
    return true;
}

static int64_t decimal_ns(const char *value) {
    char *end;
    int64_t ns = strtoll(value, &end, 10) * 1000000000, unit = 100000000;
    if (*end == '.')
        for (end++; *end >= '0' && *end <= '9' && unit; end++, unit /= 10) ns += (*end - '0') * unit;
    return ns;
}

static bool take_record(const char *key, const char *value, size_t length, struct member *member, uint64_t *given) {
    if (!strcmp(key, "path")) return *given |= GIVES_NAME, set_text(member->name, value, length);
    if (!strcmp(key, "linkpath")) return *given |= GIVES_TARGET, set_text(member->target, value, length);
    if (!strcmp(key, "size")) *given |= GIVES_SIZE, member->size = strtoull(value, NULL, 10);
    if (!strcmp(key, "uid")) *given |= GIVES_UID, member->uid = (uid_t)strtoul(value, NULL, 10);
    if (!strcmp(key, "gid")) *given |= GIVES_GID, member->gid = (gid_t)strtoul(value, NULL, 10);
    if (!strcmp(key, "mtime")) *given |= GIVES_MTIME, member->mtime_ns = decimal_ns(value);
    return true;
}

bool tar_extend(const char *records, size_t length, struct member *member, uint64_t *given) {
    for (const char *at = records, *end = records + length; at < end;) {
        char *space, key[64];
        size_t size = strtoull(at, &space, 10);
        if (size > (size_t)(end - at) || size < 5 || *space != ' ' || at[size - 1] != '\n') return false;
        const char *name = space + 1, *last = at + size - 1;
        const char *equals = name < last ? memchr(name, '=', (size_t)(last - name)) : NULL;
        if (!equals) return false;
        snprintf(key, sizeof key, "%.*s", (int)(equals - name < 63 ? equals - name : 63), name);
        /* Numbers are read from the text: they end at the newline. */
        if (!take_record(key, equals + 1, (size_t)(last - equals - 1), member, given)) return false;
        at += size;
    }
    return true;
}
