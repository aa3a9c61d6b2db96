// Tables: sorted by their headings, filtered by a text, rendered a hundred rows at a time.

import { html, useMemo, useState } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { Scroll } from "./scroll.js";

const STEP = 100;

/**
 * `columns`: {key, title, value?(row) to sort and filter by, cell?(row), num?, wide?, fixed?,
 * about? (a tooltip of its heading)}.
 * `rowKey(row)` identifies a row, wherever it is: required if rows have buttons.
 * `find` shows a field that filters by any column; `pick` {chosen: Set, key(row), choose(set)} adds
 * check boxes. `label` names the table for screen readers, with `titled` for all users.
 */
export function Table({
  label,
  titled,
  columns,
  rows,
  rowKey,
  empty = "Nothing.",
  find,
  tools,
  pick,
  sort,
}) {
  const [order, setOrder] = useState(sort || null);
  const [word, setWord] = useState("");
  const [shown, setShown] = useState(STEP);
  const ordered = useMemo(
    () => sorted(filtered(rows, columns, word), columns, order),
    [rows, word, order],
  );
  const visible = ordered.slice(0, shown);
  const keyOf = rowKey || pick?.key;
  return html`
    ${titled && html`<h3 class="table-title">${label}</h3>`}
    ${
      (find || tools) &&
      html`<div class="table-tools">
      ${
        find &&
        html`<input
        type="search"
        placeholder=${find}
        aria-label=${find}
        value=${word}
        onInput=${(event) => setWord(event.target.value)}
      />`
      }
      ${tools} ${word && html`<span class="quiet small">${count(ordered.length)} of ${count(rows.length)}</span>`}
    </div>`
    }
    ${
      rows.length === 0
        ? html`<p class="empty">${empty}</p>`
        : html`<${Scroll} label=${label}>
          <table>
            <caption class="hidden-label">
              ${label}
            </caption>
            <thead>
              <tr>
                ${pick && html`<${PickAll} pick=${pick} rows=${ordered} />`}
                ${columns.map(
                  (column) =>
                    html`<${Head} column=${column} order=${order} setOrder=${setOrder} />`,
                )}
              </tr>
            </thead>
            <tbody>
              ${visible.map(
                (row) =>
                  html`<${Row} key=${keyOf?.(row)} row=${row} columns=${columns} pick=${pick} />`,
              )}
            </tbody>
          </table>
        <//>`
    }
    ${
      ordered.length > shown &&
      html`<div class="table-foot">
      ${count(shown)} of ${count(ordered.length)} rows
      <button type="button" class="compact" onClick=${() => setShown(shown + STEP)}>
        Show more
      </button>
    </div>`
    }
  `;
}

function Head({ column, order, setOrder }) {
  const kind = column.num ? "num" : "";
  if (column.fixed) {
    return html`<th scope="col" class=${kind}>
      ${column.title || html`<span class="hidden-label">Actions</span>`}
    </th>`;
  }
  const mine = order?.key === column.key;
  const next = { key: column.key, down: mine ? !order.down : Boolean(column.num) };
  return html`<th
    scope="col"
    class=${kind}
    title=${column.about}
    aria-sort=${mine ? (order.down ? "descending" : "ascending") : undefined}
  >
    <button type="button" class="sort" onClick=${() => setOrder(next)}>
      ${column.title}<span aria-hidden="true">${mine ? (order.down ? " ↓" : " ↑") : ""}</span>
    </button>
  </th>`;
}

function Row({ row, columns, pick }) {
  return html`<tr>
    ${
      pick &&
      html`<td>
      <input
        type="checkbox"
        aria-label=${`Select ${pick.key(row)}`}
        checked=${pick.chosen.has(pick.key(row))}
        onChange=${() => pick.choose(toggled(pick.chosen, [pick.key(row)]))}
      />
    </td>`
    }
    ${columns.map(
      (column) =>
        html`<td class=${`${column.num ? "num" : ""} ${column.wide ? "wide" : ""}`}>
          ${column.cell ? column.cell(row) : plain(valueOf(column, row))}
        </td>`,
    )}
  </tr>`;
}

function PickAll({ pick, rows }) {
  const keys = rows.map(pick.key);
  const all = keys.length > 0 && keys.every((key) => pick.chosen.has(key));
  return html`<th scope="col">
    <input
      type="checkbox"
      aria-label="Select all listed"
      checked=${all}
      onChange=${() =>
        pick.choose(
          toggled(
            pick.chosen,
            keys.filter((key) => all || !pick.chosen.has(key)),
          ),
        )}
    />
  </th>`;
}

function toggled(chosen, keys) {
  const next = new Set(chosen);
  for (const key of keys) if (!next.delete(key)) next.add(key);
  return next;
}

function plain(value) {
  if (!known(value)) return html`<span class="missing-value" title="unknown">—</span>`;
  if (typeof value === "number") return count(value);
  return Array.isArray(value) ? value.join(", ") : String(value);
}

function valueOf(column, row) {
  return column.value ? column.value(row) : row[column.key];
}

/** Rows with a column that contains the text. Pure. */
export function filtered(rows, columns, word) {
  const wanted = word.trim().toLowerCase();
  if (!wanted) return rows;
  return rows.filter((row) =>
    columns.some((column) =>
      String(valueOf(column, row) ?? "")
        .toLowerCase()
        .includes(wanted),
    ),
  );
}

/** Rows sorted by one column, unknown values last in both directions. Pure. */
export function sorted(rows, columns, order) {
  const column = order && columns.find(({ key }) => key === order.key);
  if (!column) return rows;
  const sign = order.down ? -1 : 1;
  return [...rows].sort((left, right) => {
    const a = valueOf(column, left);
    const b = valueOf(column, right);
    if (!known(a) || !known(b)) return Number(!known(a)) - Number(!known(b));
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}
