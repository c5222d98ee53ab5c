#include "app/terminal/table.h"

#include <stdarg.h>
#include <string.h>

#include "pure/text/escape.h"

void kin_table_init(kin_table *table, const char *align, const char *const *titles) {
    *table = (kin_table){.n_columns = (int)strlen(align), .align = align};
    kin_assert(table->n_columns <= KIN_TABLE_MAX_COLUMNS);
    kin_table_row(table);
    for (int k = 0; k < table->n_columns; k++) kin_table_cell(table, k, "%s", titles[k]);
}

void kin_table_row(kin_table *table) {
    if (table->n_rows == KIN_TABLE_MAX_ROWS) table->n_rows--;
    memset(table->cells[table->n_rows++], 0, sizeof table->cells[0]);
}

void kin_table_cell(kin_table *table, int column, const char *fmt, ...) {
    char text[2 * KIN_TABLE_CELL];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kin_escape(table->cells[table->n_rows - 1][column], KIN_TABLE_CELL, text, strlen(text));
}

static int width_of(const char *text) {
    int n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

// Omits trailing spaces.
static void print_row(const kin_table *table, int row, const int *widths, FILE *file) {
    int n = table->n_columns;
    while (n > 0 && !table->cells[row][n - 1][0]) n--;
    for (int k = 0; k < n; k++) {
        const char *cell = table->cells[row][k];
        int space = widths[k] - width_of(cell);
        bool last = k == n - 1;
        if (table->align[k] == 'r')
            fprintf(file, "%*s%s%s", space, "", cell, last ? "" : "  ");
        else
            fprintf(file, "%s%*s", cell, last ? 0 : space + 2, "");
    }
    fputc('\n', file);
}

void kin_table_print(const kin_table *table, FILE *file) {
    int widths[KIN_TABLE_MAX_COLUMNS] = {0};
    for (int row = 0; row < table->n_rows; row++) {
        for (int k = 0; k < table->n_columns; k++) {
            int width = width_of(table->cells[row][k]);
            if (width > widths[k]) widths[k] = width;
        }
    }
    for (int row = 0; row < table->n_rows; row++) print_row(table, row, widths, file);
}
