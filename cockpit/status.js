// SPDX-License-Identifier: Apache-2.0
// The node as a whole: its state, what runs, its holds, the registries that do not answer.
// @ts-check

import { h, Fragment, Alert, Button, Card, Cell, Icon, Label, Progress, Row, Spinner, Table, Term, Terms } from "./ui.js";
import { _, bytes, clock, format, ngettext, relative } from "./i18n.js";
import * as model from "./model.js";

export const Time = ({ at, now }) => {
    const then = new Date(at);
    return h("time", { dateTime: at, title: clock(then) }, relative(then, now));
};

export const allows = (page, method) => {
    if (!page.up)
        return _("The daemon does not run");
    if (page.allowed && !page.allowed.includes(method))
        return _("You may not do this. Turn on administrative access.");
    return "";
};

export function Header(page) {
    const { status: s, doing } = page;
    const held = s && model.isEverythingHeld(s);
    return h("div", { class: "head" },
        h("h1", { class: "pf-v6-c-title pf-m-2xl" }, _("Image updates")),
        h("div", { class: "buttons" },
            held && h(Button, {
                id: "unhold-all", disabled: allows(page, "Unhold"), busy: doing === "unhold *",
                onClick: () => page.act("unhold *", daemon => daemon.unhold([], true), _("All holds have ended")),
            }, _("Unhold everything")),
            s && !held && s.images.length > 0 && h(Button, {
                id: "hold-all", disabled: allows(page, "Hold"), onClick: () => page.ask({ kind: "hold", all: true, files: [] }),
            }, _("Hold everything…")),
            h(Button, {
                id: "check", kind: !s || s.lastCheck ? "secondary" : "primary", busy: doing === "check", disabled: allows(page, "Check"),
                onClick: () => page.act("check", daemon => daemon.check(), _("All registries were asked")),
            }, _("Check now"))));
}

export function Status(page) {
    const { status: s, now } = page;
    const head = model.headline(s, { up: page.up, busy: model.isBusy(page), now });
    const pods = model.applicable(s);
    const count = pods.reduce((sum, pod) => sum + Math.max(1, pod.moves.length), 0);
    return h(Card, {
        id: "status",
        title: h("span", { class: "state", "data-state": s.state, "data-icon": head.icon }, h(Icon, { kind: head.icon }), " ", head.title),
        actions: count > 0 && h(Button, {
            id: "apply-all", kind: "primary", disabled: allows(page, "Apply") || s.state === "applying" && _("An update is being applied"),
            onClick: () => page.ask({ kind: "apply", files: pods.map(pod => pod.podManifest) }),
        }, format(ngettext("Apply $0 update…", "Apply $0 updates…", count), count)),
    },
    model.hasReason(s) && h("p", { id: "reason" }, s.reason),
    h(Terms, null,
        h(Term, { name: _("Since") }, h(Time, { at: s.since, now })),
        h(Term, { name: _("Last check"), id: "last-check" }, s.lastCheck ? h(Time, { at: s.lastCheck, now }) : _("Never")),
        h(Term, { name: _("Next check"), id: "next-check" }, nextCheck(page)),
        s.catalog && h(Term, { name: _("Release catalog") }, h(Catalog, { catalog: s.catalog, now })),
        s.lock && model.lockText(s.lock) && h(Term, { name: _("Lock of the fleet"), id: "lock" }, model.lockText(s.lock),
            s.lock.holders.length > 0 && " (" + s.lock.holders.map(holder => holder.id).join(", ") + ")",
            s.lock.error && h("div", { class: "error" }, s.lock.error),
            s.lock.warning && h("div", { class: "error" }, s.lock.warning)),
        s.budget && s.budget.remaining * 10 < s.budget.perHour && h(Term, { name: _("Requests to registries") },
            format(_("$0 of $1 left in this hour"), s.budget.remaining, s.budget.perHour))),
    s.state === "current" && s.notAllowed?.length > 0 && h("p", { class: "small" }, s.reason));
}

function nextCheck({ up, status: s, now }) {
    if (!up)
        return _("When the daemon runs again");
    return s.nextCheck ? h(Time, { at: s.nextCheck, now }) : _("Polling is off");
}

function Catalog({ catalog: c, now }) {
    return h(Fragment, null, c.catalog, " ", c.version > 0 && format(_("version $0"), c.version),
        c.expired && h(Fragment, null, " ", h(Label, { color: "orange" }, _("expired"))),
        c.error && h("div", { class: "error" }, c.error, c.retryAt && h(Fragment, null, " ", _("Next try:"), " ", h(Time, { at: c.retryAt, now }))));
}

/** What runs now. Nothing of it can be cancelled. */
export function Work({ pulls, work }) {
    if (pulls.length === 0 && !work)
        return null;
    return h(Card, { id: "work", title: _("In progress") },
        work && h("p", null, h(Spinner), " ", phaseOf(work.phase), " ", work.podManifest || work.reference),
        pulls.map((pull, n) => h(Progress, {
            key: pull.reference, id: "pull-" + n, title: pull.reference,
            value: pull.total ? Math.floor(100 * pull.done / pull.total) : null,
            text: pull.total ? format(_("$0 of $1"), bytes(pull.done), bytes(pull.total)) : phaseOf(pull.phase),
        })));
}

function phaseOf(phase) {
    const phases = {
        asking: _("Asking for"), confirming: _("Reading again"), changing: _("Changing"), returning: _("Rolling back"),
        locking: _("Taking the lock of the fleet for"), waiting: _("Waiting for"), proving: _("Proving"), resolving: _("Resolving"), downloading: _("Downloading"),
        unpacking: _("Unpacking"),
    };
    return phases[phase] ?? phase;
}

export function Holds(page) {
    const holds = model.standingHolds(page.status);
    if (holds.length === 0)
        return null;
    const columns = [_("Image"), _("Reason"), _("Until"), _("Set by"), ""];
    return h(Card, { id: "holds", title: _("Holds") },
        h(Table, { label: _("Holds"), columns },
            h("tbody", { class: "pf-v6-c-table__tbody" }, holds.map(hold => h(StandingHold, { ...page, key: hold.repository + hold.name + hold.by.kind, hold, columns })))));
}

function StandingHold(page) {
    const { hold, columns, now } = page;
    const all = hold.repository === "*", isEnded = model.isEnded(hold);
    return h(Row, { "data-hold": hold.repository },
        h(Cell, { label: columns[0] }, all ? _("All images") : hold.repository),
        h(Cell, { label: columns[1] }, hold.reason || "–"),
        h(Cell, { label: columns[2] }, hold.until ? h(Time, { at: hold.until, now }) : isEnded ? _("It ends by Unhold.") : _("It is removed from the configuration")),
        h(Cell, { label: columns[3] }, model.actor(hold.by), hold.since && h("div", { class: "small" }, h(Time, { at: hold.since, now }))),
        h(Cell, { label: columns[4] }, isEnded && h(Button, {
            small: true, "data-do": "unhold", disabled: allows(page, "Unhold"),
            onClick: () => page.act("unhold", daemon => daemon.unhold(all ? [] : [hold.repository], all), _("The hold has ended")),
        }, _("Unhold"))));
}

export function Registries({ status: s, now }) {
    const silent = model.silent(s);
    return silent.length > 0 && h(Card, { id: "registries", title: _("Registries that do not answer") },
        silent.map(source => h(Alert, {
            kind: "warning", key: source.repository + source.host, title: source.host ? `${source.repository} (${source.host})` : source.repository,
        },
        source.reason || source.error,
        h("p", { class: "small" },
            _("Last answer:"), " ", source.lastSuccess ? h(Time, { at: source.lastSuccess, now }) : _("never"),
            source.retryAt && h(Fragment, null, " · ", _("Next try:"), " ", h(Time, { at: source.retryAt, now }))))));
}
