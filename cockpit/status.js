// SPDX-License-Identifier: Apache-2.0
// The node as a whole: its state, what to do, its holds.
// @ts-check

import { h, Fragment, Button, Card, Cell, Icon, Row, Table, Term, Terms, Time, Why } from "./ui.js";
import { _, format, ngettext } from "./i18n.js";
import { Result } from "./result.js";
import * as model from "./model.js";

/** Why a person may not call a method; empty: the person may. */
export const allows = (page, method) => {
    if (!page.up)
        return _("The daemon does not run");
    if (page.allowed && !page.allowed.includes(method))
        return _("You may not do this. Turn on administrative access.");
    return "";
};

export function Header(page) {
    const { status: s, act, ask } = page;
    const held = s && model.isEverythingHeld(s);
    const resume = () => s.auto ? ask({ kind: "resume" }) : act({ what: "resume", done: _("All holds have ended") }, daemon => daemon.resume([], true));
    return h("div", { class: "head" },
        h("h1", { class: "pf-v6-c-title pf-m-2xl", tabIndex: -1 }, _("Image updates")),
        h("div", { class: "buttons" },
            held && h(Button, { id: "resume-all", disabled: allows(page, "Resume"), busy: model.isDoing(page, "resume"), onClick: resume },
                s.auto ? _("Resume everything…") : _("Resume everything")),
            s && !held && s.images.length > 0 && h(Button, {
                id: "hold-all", disabled: allows(page, "Hold"), onClick: () => ask({ kind: "hold", all: true, files: [] }),
            }, _("Hold everything…")),
            h(Button, {
                id: "check", kind: !s || s.lastCheck ? "secondary" : "primary", busy: model.isDoing(page, "check"), disabled: allows(page, "Check"),
                onClick: () => act({ what: "check", done: _("All registries were asked") }, daemon => daemon.check()),
            }, _("Check now"))));
}

export function Status(page) {
    const { status: s, now, result } = page;
    const head = model.headline(s, { up: page.up, busy: model.isBusy(page), now });
    const pods = model.applicable(s), advice = model.advice(s, page), auto = model.autoText(s.auto, now);
    const count = pods.reduce((sum, pod) => sum + Math.max(1, pod.moves.length), 0);
    return h(Card, {
        id: "status",
        title: h("span", { class: "state", "data-state": s.state, "data-icon": head.icon }, h(Icon, { kind: head.icon }), " ", head.title),
        actions: count > 0 && h(Button, {
            id: "apply-all", kind: "primary", disabled: allows(page, "Apply") || s.state === "applying" && _("An update is being applied"),
            onClick: () => page.ask({ kind: "apply", files: pods.map(pod => pod.podManifest) }),
        }, format(ngettext("Apply $0 update…", "Apply $0 updates…", count), count)),
    },
    result && isOfNode(result) && h(Result, { result, id: "result", onClose: page.dismiss }),
    model.reasons(s).filter(reason => reason.text !== head.reason || reason.cause || reason.file).map(reason => h("p", { class: "reason", key: reason.text + reason.cause },
        reason.text === head.reason ? h("span", { class: "small" }, reason.cause) : h(Why, reason), " ",
        reason.file && h(Button, { kind: "link", small: true, "data-do": "show", onClick: () => page.show(reason.file) }, format(_("Show $0"), reason.file)))),
    advice && h("p", { id: "advice" }, h("strong", null, _("What to do:")), " ", advice),
    s.dropped?.map(one => h("p", { class: "error", key: one.entry }, format(_("The agent could not write $0: $1"), one.entry, one.reason))),
    h(Terms, null,
        h(Term, { name: _("Since") }, h(Time, { at: s.since, now })),
        s.lastCheck && h(Term, { name: _("Last check"), id: "last-check" }, h(Time, { at: s.lastCheck, now })),
        (s.lastCheck || !s.nextCheck) && h(Term, { name: _("Next check"), id: "next-check" }, nextCheck(page)),
        auto && h(Term, { name: _("Automatic updates"), id: "auto" }, auto)));
}

/** Whether a result stands in the card of the node: it is of several pods, or of none. */
export const isOfNode = result => result.files.length !== 1;

function nextCheck({ up, status: s, now }) {
    if (!up)
        return _("When the daemon runs again");
    return s.nextCheck ? h(Time, { at: s.nextCheck, now }) : _("Polling is off");
}

export function Holds(page) {
    const holds = model.standingHolds(page.status);
    if (holds.length === 0)
        return null;
    const columns = [_("Image"), _("Reason"), _("Until"), _("Set by"), _("Action")];
    return h(Card, { id: "holds", title: _("Holds") },
        h(Table, { label: _("Holds"), columns },
            h("tbody", { class: "pf-v6-c-table__tbody" }, holds.map(hold => h(StandingHold, { ...page, key: hold.repository + hold.name + hold.by.kind, hold, columns })))));
}

function StandingHold(page) {
    const { hold, columns, now } = page;
    const all = hold.repository === "*", isEnded = model.isEnded(hold);
    return h(Row, { "data-hold": hold.repository },
        h(Cell, { label: columns[0] }, all ? _("All images") : hold.repository),
        h(Cell, { label: columns[1] }, h("div", null, h(Why, model.holdReason(hold)))),
        h(Cell, { label: columns[2] }, hold.until ? h(Time, { at: hold.until, now, zone: true }) : model.remedy({ by: hold.by.kind, remedy: hold.remedy })),
        h(Cell, { label: columns[3] }, h("div", null, model.actor(hold.by), hold.since && h(Fragment, null, " ", h(Time, { at: hold.since, now })))),
        h(Cell, { label: columns[4] }, isEnded ? h(Button, {
            small: true, "data-do": "resume", disabled: allows(page, "Resume"),
            onClick: () => all && page.status.auto
                ? page.ask({ kind: "resume" })
                : page.act({ what: "resume", done: _("The hold has ended") }, daemon => daemon.resume(all ? [] : [hold.repository], all)),
        }, _("Resume")) : "–"));
}
