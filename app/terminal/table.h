// Tables on a terminal: columns as wide as their widest cell, text left-aligned and figures right-aligned.
//
// Cells are UTF-8; widths count characters. Text from other machines is escaped here, so a name cannot move the cursor. The
// caller owns the table; it is too large for a small stack.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

enum { KIN_TABLE_MAX_COLUMNS = 12, KIN_TABLE_MAX_ROWS = 80, KIN_TABLE_CELL = 96 };

typedef struct kin_table {
    int n_columns, n_rows; // the titles are row 0
    const char *align;     // one letter per column: 'l' or 'r'
    char cells[KIN_TABLE_MAX_ROWS][KIN_TABLE_MAX_COLUMNS][KIN_TABLE_CELL];
} kin_table;

// titles // [strlen(align)]; align is borrowed.
void kin_table_init(kin_table *table, const char *align, const char *const *titles);

// Appends a row of empty cells; kin_table_cell fills a cell of the last row. Beyond the maximum a new row replaces the last one.
void kin_table_row(kin_table *table);
void kin_table_cell(kin_table *table, int column, const char *fmt, ...) KIN_PRINTF(3, 4);

void kin_table_print(const kin_table *table, FILE *file);
