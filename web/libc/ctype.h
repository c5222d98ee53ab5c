static inline int isdigit(int c) {
    return c >= '0' && c <= '9';
}
static inline int toupper(int c) {
    return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
}
