// SPDX-License-Identifier: Apache-2.0
// What was applied, rolled back, picked up by kubelet, or has failed.
// @ts-check

import { h, Button, Card, Cell, Label, Row, Table, Time, Why } from "./ui.js";
import { _, format } from "./i18n.js";
import { Brings } from "./pods.js";
import { actor, changeName, failure, lastPart, results } from "./model.js";

const first = 8; // entries before "Show all"

export function History(page) {
    const all = page.status.history;
    if (!all)
        return null; // of an older daemon
    const entries = page.wholeHistory ? all : all.slice(0, first);
    const columns = [_("When"), _("Pod"), _("From"), _("To"), _("Result"), _("By")];
    return h(Card, {
        id: "history", title: _("History"),
        actions: all.length > first && h(Button, { kind: "link", id: "history-all", onClick: () => page.set({ wholeHistory: !page.wholeHistory }) },
            page.wholeHistory ? _("Show less") : format(_("Show all $0"), all.length)),
    },
    all.length === 0
        ? h("p", null, _("Nothing was applied on this node yet."))
        : h(Table, { label: _("History"), columns }, h("tbody", { class: "pf-v6-c-table__tbody" },
            entries.map((entry, n) => h(Entry, { key: entry.at + n, entry, columns, now: page.now })))));
}

function Entry({ entry: e, columns, now }) {
    const result = results()[e.result] ?? { text: e.result };
    return h(Row, null,
        h(Cell, { label: columns[0] }, h(Time, { at: e.at, now })),
        h(Cell, { label: columns[1] }, h("div", null, e.podManifest, h("div", { class: "small" }, [e.container, lastPart(e.image)].filter(Boolean).join(" · ")))),
        h(Cell, { label: columns[2] }, e.from || "–"),
        h(Cell, { label: columns[3] }, h("div", null, e.to || "–", e.change && h("div", { class: "small" }, changeName(e.change)), h(Brings, { brings: e }), e.digest && h("details", { class: "small" }, h("summary", null, _("digest")), h("span", { class: "digest" }, e.digest)))),
        h(Cell, { label: columns[4] }, h("div", null, h(Label, { color: result.color }, result.text), (e.reason || e.cause) && h("div", { class: "small" }, h(Why, failure({ kind: e.cause, text: e.reason }))))),
        h(Cell, { label: columns[5] }, actor(e.by)));
}
