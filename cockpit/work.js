// SPDX-License-Identifier: Apache-2.0
// What the daemon does now: pulls, and a restart as a story. Nothing of it can be cancelled.
// @ts-check

import { h, Card, Progress, Spinner, Time } from "./ui.js";
import { _, bytes, clock, duration, format, ngettext } from "./i18n.js";
import * as model from "./model.js";

export function Work(page) {
    const { pulls, work, status: s, now } = page;
    if (pulls.length === 0 && !work && !s.interrupted)
        return null;
    return h(Card, { id: "work", title: _("In progress") },
        work && h(Story, page),
        s.interrupted && h("p", null, format(_("Interrupted by “$1”: $0. It goes on afterwards."), model.interrupted(s.interrupted.work), s.interrupted.for || _("a request")), " ", h(Time, { at: s.interrupted.at, now })),
        pulls.map((pull, n) => h(Progress, {
            key: pull.reference, id: "pull-" + n, title: pull.reference,
            value: pull.total ? Math.floor(100 * pull.done / pull.total) : null,
            text: pull.total ? format(_("$0 of $1"), bytes(pull.done), bytes(pull.total)) : phaseOf(pull.phase),
        })));
}

/** Where a restart is: pod and step of how many, what the pod lacks, how long it may take. */
export function Story({ work, status: s, now }) {
    if (!work)
        return h("p", { class: "story" }, h(Spinner), " ", _("The daemon begins…"));
    const story = model.story(work, Boolean(s.lock)), of = work.podManifest || work.reference;
    if (!story)
        return h("p", { class: "story" }, h(Spinner), " ", phaseOf(work.phase), " ", of);
    const since = work.since && now.getTime() - new Date(work.since).getTime();
    return h("div", { class: "story" },
        h("p", null, h(Spinner), " ", h("strong", null, of), " ", work.count > 1 && format(_("(pod $0 of $1)"), work.number, work.count)),
        h("p", null, format(_("Step $0 of $1: $2"), story.step, story.steps, story.text)),
        work.edits?.length > 0 && h(Edits, { edits: work.edits }),
        work.phase === "locking" && s.lock?.holders.length > 0 && h("p", null, _("The lock is held by:"), " ", s.lock.holders.map(holder => holder.id).join(", ")),
        work.reason && h("p", { class: "error" }, work.reason),
        work.deadline && h("p", { class: "small number" }, work.healthyAt
            ? format(_("$0 so far; healthy at $1 if it keeps running"), duration(since), clock(new Date(work.healthyAt), { now }))
            : format(_("$0 so far; rolled back at $1 if it does not run by then"), duration(since), clock(new Date(work.deadline), { now }))));
}

/** What an apply changes in a pod manifest, as a difference. */
export const Edits = ({ edits }) => edits.length > 0 && h("details", { class: "edits" },
    h("summary", null, format(ngettext("$0 line of the pod manifest changes", "$0 lines of the pod manifest change", edits.length), edits.length)),
    edits.map(edit => h("div", { key: edit.container + edit.field },
        h("div", { class: "small" }, edit.container),
        edit.from && h("del", null, `- ${edit.field}: ${edit.from}`),
        h("ins", null, `+ ${edit.field}: ${edit.to}`))));

function phaseOf(phase) {
    const phases = {
        asking: _("Asking for"), confirming: _("Reading again"), resolving: _("Resolving"), downloading: _("Downloading"), unpacking: _("Unpacking"),
    };
    return phases[phase] ?? phase;
}
