// SPDX-License-Identifier: Apache-2.0
// The pods: what each container runs, what is offered, what holds it, and what a person can do.
// @ts-check

import { h, Fragment, Button, Card, Cell, Icon, Label, Row, Spinner, Table, Time, Why } from "./ui.js";
import { _, bytes, format, ngettext } from "./i18n.js";
import { Result } from "./result.js";
import { allows, isOfNode } from "./status.js";
import { Edits } from "./work.js";
import * as model from "./model.js";

const changeColors = { major: "orange", minor: "blue", patch: "blue", revision: "teal", rebuild: "teal", remove: "red" };

const severityColors = { critical: "red", important: "orange", moderate: "blue", low: "teal" };

const columnsOf = () => [_("Container"), _("Runs"), _("Offered"), _("Change"), _("Size")];

export const Pods = page => {
    const all = model.pods(page.status), columns = columnsOf(), isMany = all.length > model.manyPods;
    const pods = isMany ? model.found(all, page) : all;
    return h(Card, { id: "pods", title: _("Pods"), actions: isMany && h(Filter, page) },
        h("p", { class: "small", role: "status" }, isMany && pods.length < all.length && format(_("$0 of $1 pods"), pods.length, all.length)),
        all.length === 0
            ? h("p", null, _("No pod manifest of this node names an image that can be followed."))
            : pods.length > 0 && h(Table, { label: _("Pods"), columns },
                pods.map(pod => h(Pod, { ...page, key: pod.podManifest, pod, columns, isMany }))));
};

const Filter = ({ search, onlyUpdates, set }) => h(Fragment, null,
    h("label", { class: "check" }, h("input", { id: "only-updates", type: "checkbox", checked: onlyUpdates, onChange: event => set({ onlyUpdates: event.target.checked }) }), " ", _("Only updates")),
    h("span", { class: "pf-v6-c-form-control" }, h("input", {
        id: "search", type: "search", value: search, placeholder: _("Pod, container or image"), "aria-label": _("Search the pods"), onInput: event => set({ search: event.target.value }),
    })));

// With many pods, those without news show their containers only when a person wants to see them.
function Pod(page) {
    const { pod, columns, isMany, open, result, work, set } = page, file = pod.podManifest;
    const title = file || _("Images that only the configuration names");
    const isQuiet = isMany && pod.rank > 2, isOpen = !isQuiet || open.has(file);
    const toggle = () => set({ open: new Set(isOpen ? [...open].filter(one => one !== file) : [...open, file]) });
    const isBusy = work?.podManifest === file || file && page.doing.some(one => ["apply", "rollback"].includes(one.what) && one.files.includes(file));
    return h("tbody", { class: "pf-v6-c-table__tbody pod", "data-pod": file },
        h(Row, { class: "pf-v6-c-table__tr pod-row" },
            h("th", { class: "pf-v6-c-table__th", colSpan: columns.length, scope: "rowgroup" },
                h("div", { class: "head" },
                    h("span", { tabIndex: -1 }, isBusy && h(Fragment, null, h(Spinner), " "), h("strong", { title: pod.pod }, title),
                        pod.pod && pod.pod !== file.replace(/\.[^.]*$/, "") && h("span", { class: "small" }, " ", pod.pod),
                        pod.holds.length > 0 && h(Label, { color: "orange" }, pod.held.length > 0 ? _("held") : _("not automatically")), // why is below
                        pod.change && pod.images.every(i => !i.change) && h(Label, { color: changeColors[pod.change] }, model.changeName(pod.change))),
                    h("span", { class: "buttons" },
                        isQuiet && h(Button, { small: true, kind: "link", "data-do": "fold", "aria-expanded": isOpen ? "true" : "false", onClick: toggle },
                            format(ngettext("$0 container", "$0 containers", pod.images.length), pod.images.length)),
                        h(Actions, page))),
                work?.podManifest === file && work.reason && h("p", { class: "trouble error" }, work.reason),
                result && !isOfNode(result) && result.files[0] === file && h(Result, { result, id: "result", onClose: page.dismiss }),
                h(Troubles, page))),
        isOpen && pod.images.map(image => h(Image, { ...page, key: image.container + image.image, image })));
}

function Actions(page) {
    const { pod, status: s } = page, file = pod.podManifest;
    const busy = s.state === "applying" && _("An update is being applied");
    const held = pod.held.length > 0 && _("It is held");
    const ask = (kind, more) => () => page.ask({ kind, files: [file], ...more });
    const button = (method, name, text, rest) => h(Button, { small: true, "data-do": name, "aria-label": text.replace("…", "") + " " + file, ...rest, disabled: allows(page, method) || rest.disabled }, text);
    return h(Fragment, null,
        pod.can.apply && button("Apply", "apply", _("Apply…"), { disabled: busy || held, onClick: ask("apply") }),
        pod.can.retry && button("Apply", "retry", _("Try again…"), { disabled: busy, onClick: ask("apply", { retry: true }) }),
        pod.can.rollback && button("Rollback", "rollback", _("Roll back…"), { disabled: busy, onClick: ask("rollback") }),
        pod.can.resume && button("Resume", "resume", _("Resume"), {
            busy: model.isDoing(page, "resume", file),
            onClick: () => page.act({ what: "resume", files: [file], done: format(_("$0 is not held any more"), file) }, daemon => daemon.resume([file])),
        }),
        pod.can.hold && !pod.can.resume && button("Hold", "hold", _("Hold…"), { onClick: ask("hold") }));
}

// Holds with what ends them, errors, the last rollback, and references that stay as they are.
function Troubles({ pod, status: s, now }) {
    const back = pod.rolledBack, failure = (s.failures ?? []).find(one => one.podManifest === pod.podManifest && one.to);
    return h(Fragment, null,
        pod.waiting && h("p", { class: "trouble small" }, _("A rendered pod manifest waits for approval.")),
        h(Edits, { edits: pod.edits ?? [] }),
        pod.holds.map(hold => h(Hold, { key: hold.name + hold.reason, hold, now })),
        failure && h("p", { class: "trouble error" }, h(Icon, { kind: "danger" }), " ",
            format(_("$0: the update from $1 to $2 did not come up."), failure.container || model.lastPart(failure.image), failure.from || "–", failure.to), " ",
            failure.rolledBackTo && format(_("$0 runs again."), failure.rolledBackTo), " ", failure.at && h(Time, { at: failure.at, now }),
            " ", h(Why, model.failure({ kind: failure.cause, text: failure.reason }))),
        back && h("p", { class: "trouble" }, h(Icon, { kind: "warning" }), " ",
            format(back.byHand && !failure ? _("A person rolled it back to $0. Denied on this node: $1.") : _("Rolled back to $0. Denied on this node: $1."), back.runs.join(", "), back.denied.join(", ")), " ",
            h(Time, { at: back.at, now }), back.reason && !failure && h("span", { class: "small" }, " ", back.reason),
            h("div", { class: "small" }, _("Try again when the cause is gone, or wait for a newer release."))),
        pod.error && h("p", { class: "trouble error" }, h(Icon, { kind: "danger" }), " ", h(Why, model.failure({ kind: pod.errorKind, text: pod.error }))),
        pod.untouched?.map(one => h("p", { class: "trouble small", key: one.path + one.line }, format(_("$0 stays as it is: $1"), one.reference || one.path, _(one.text)), " ", h("span", { class: "digest" }, `${one.path}:${one.line}`))));
}

const Hold = ({ hold, now }) => h("p", { class: "trouble" }, h(Icon, { kind: "warning" }), " ",
    hold.image && hold.image !== "*" && h("span", null, model.lastPart(hold.image), ": "), h(Why, model.holdReason(hold)),
    hold.until && h(Fragment, null, " (", _("until"), " ", h(Time, { at: hold.until, now, zone: true }), ")"), " ",
    hold.onlyAuto && h(Label, null, _("automatic updates only")), " ",
    h("div", { class: "small" }, model.remedy(hold)));

// A release, with its digest in full where a person unfolds it.
const Release = ({ release, children }) => release
    ? h("details", { class: "release" }, h("summary", null, model.name(release)), h("div", { class: "small digest" }, release.digest), children)
    : h("span", null, "–");

function Image({ image: i, columns, now }) {
    const [container, runs, offered, change, size] = columns;
    return h(Row, null,
        h(Cell, { label: container }, h("div", null, i.container || i.image, i.container && h("div", { class: "small" }, i.image),
            i.host && h("div", { class: "small" }, format(i.mirror ? _("mirror $0") : _("registry $0"), i.host)))),
        h(Cell, { label: runs }, h("div", null, h(Release, { release: i.running },
            h("div", { class: "small" }, format(_("follows $0"), i.follow)),
            i.lastKnownGood && h("div", { class: "small" }, format(_("last known good: $0"), model.name(i.lastKnownGood)), h("div", { class: "digest" }, i.lastKnownGood.digest)),
            i.previous && h("div", { class: "small" }, format(_("Roll back returns to $0"), model.name(i.previous)), h("div", { class: "digest" }, i.previous.digest))),
        i.pickedUp && h(Label, null, _("picked up by kubelet")),
        i.bound && h(Label, null, _("bound to the digest of the catalog")),
        i.down && h(Down, { down: i.down, now }),
        i.denied && h("div", { class: "error" }, h(Label, { color: "red" }, _("denied")), " ", i.denied),
        i.withdrawn && h("div", { class: "error" }, h(Label, { color: "red" }, _("withdrawn")), " ", i.withdrawn.reason, " ", h(Time, { at: i.withdrawn.at, now }),
            i.withdrawn.to && " " + format(_("Run $0 instead."), i.withdrawn.to)))),
        h(Cell, { label: offered }, h("div", null, h(Release, { release: i.offered },
            i.created && h("div", { class: "small" }, _("built"), " ", h(Time, { at: i.created, now })),
            i.signedBy && h("div", { class: "small" }, _("signed with"), h("div", { class: "digest" }, i.signedBy))), h(Offer, { image: i, now }))),
        h(Cell, { label: change }, i.change ? h("div", null, h(Label, { color: changeColors[i.change] }, model.changeName(i.change)), h(Brings, { brings: i.brings })) : "–"),
        h(Cell, { label: size, class: "pf-v6-c-table__td number" }, i.size ? bytes(i.size) : "–"));
}

// What the publisher says of the releases up to the offered one.
export const Brings = ({ brings }) => brings && h(Fragment, null,
    brings.severity && h(Label, { color: severityColors[brings.severity] }, model.severityName(brings.severity)),
    brings.fixes?.length > 0 && h("div", { class: "small" }, format(_("fixes $0"), brings.fixes.join(", "))),
    brings.notes?.map(one => h("div", { class: "small", key: one.tag }, one.tag, ": ", one.note)),
    brings.partial && h("div", { class: "small" }, _("There may be more: the catalog does not list all of these releases.")));

const Down = ({ down, now }) => h("div", { class: "error" },
    h(Label, { color: "red" }, down.starting ? _("starting") : down.absent ? _("was not started") : _("does not run")), " ",
    [down.reason, down.message, !down.starting && !down.absent && format(_("exit code $0"), down.exitCode)].filter(Boolean).join(": "), " ", h(Time, { at: down.since, now }));

function Offer({ image: i, now }) {
    const refused = model.refused(i);
    return h(Fragment, null,
        i.signedBy && h(Label, { color: "green" }, _("signed")),
        i.set && h(Label, null, format(_("set $0"), i.set)),
        i.offered && !i.staged && h("div", { class: "small" }, _("not on the node yet"),
            i.stageFrom && h(Fragment, null, " · ", _("downloaded from"), " ", h(Time, { at: i.stageFrom, now })),
            i.retryAt && h(Fragment, null, " · ", _("Next try:"), " ", h(Time, { at: i.retryAt, now }))),
        i.shortage && h("div", { class: "error" }, format(_("It needs $0 to download and $1 to unpack, and $2 stay free; only $3 of $4 are free on $5."),
            bytes(i.shortage.compressed), bytes(i.shortage.unpacked), bytes(i.shortage.keep), bytes(i.shortage.free), bytes(i.shortage.size), i.shortage.path)),
        i.rolloutAt && h("div", { class: "small" }, _("applied automatically"), " ", h(Time, { at: i.rolloutAt, now })),
        i.holds.filter(() => i.podManifest === "").map(hold => h(Hold, { key: hold.name, hold, now })),
        refused.length > 0 && h("details", { open: refused.some(r => r.holds) },
            h("summary", null, format(ngettext("$0 newer tag is not offered", "$0 newer tags are not offered", refused.length), refused.length)),
            h("ul", null, refused.map(r => h("li", { key: r.tag + r.rule },
                h("strong", null, r.tag), " ", h(Label, null, r.rule), r.holds && h(Label, { color: "orange" }, _("holds the pod")), " ", h(Why, model.ruleReason(r)),
                r.key && h("span", { class: "small" }, " ", format(_("Allowed by $0"), r.key)),
                r.since && h(Fragment, null, " ", _("seen"), " ", h(Time, { at: r.since, now })),
                r.retryAt && h(Fragment, null, " ", _("Next try:"), " ", h(Time, { at: r.retryAt, now })))))),
        i.rebuildsOnly && h(RebuildsOnly, i.rebuildsOnly),
        i.notes?.map(note => h("div", { class: "small", key: note }, note)),
        i.error && !["source", "not-asked"].includes(i.errorKind) && h("div", { class: "small error" }, h(Why, model.failure({ kind: i.errorKind, text: i.error })))); // a registry has its alert
}

const RebuildsOnly = ({ tag, reason, pattern }) => h("div", { class: "small" },
    format(_("Only rebuilds of $0 are offered, because it has no version to compare: $1."), tag, reason), " ",
    pattern && format(_("This setting reads it: tags.pattern: $0"), pattern));
