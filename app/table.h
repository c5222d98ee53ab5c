// Tables on a terminal: cells of text, columns as wide as their widest cell, texts to the left and figures to the right.
//
// Cells are UTF-8; a width counts characters. What comes from other machines is made clean here, so a name cannot move the
// cursor. The caller owns the table; it is large, so not on a stack that is small.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

enum { KIN_TABLE_MAX_COLUMNS = 12, KIN_TABLE_MAX_ROWS = 80, KIN_TABLE_CELL = 96 };

typedef struct kin_table {
    int n_columns, n_rows; // the titles are the first row
    const char *align;     // a letter for each column: 'l' or 'r'
    char cells[KIN_TABLE_MAX_ROWS][KIN_TABLE_MAX_COLUMNS][KIN_TABLE_CELL];
} kin_table;

// titles // [strlen(align)]; align is borrowed.
void kin_table_init(kin_table *table, const char *align, const char *const *titles);

// A new row of empty cells, and the last row's cell. Rows beyond the maximum are not kept.
void kin_table_row(kin_table *table);
void kin_table_cell(kin_table *table, int column, const char *fmt, ...) KIN_PRINTF(3, 4);

void kin_table_print(const kin_table *table, FILE *file);
