// SPDX-License-Identifier: Apache-2.0
// The pods: what each container runs, what is offered, what holds it, and what a person can do.
// @ts-check

import { h, Fragment, Button, Card, Cell, Icon, Label, Row, Table } from "./ui.js";
import { _, bytes, format, ngettext } from "./i18n.js";
import { Time, allows } from "./status.js";
import * as model from "./model.js";

const changeColors = { major: "orange", minor: "blue", patch: "blue", revision: "teal", rebuild: "teal", remove: "red" };

const changes = () => ({
    major: _("major"), minor: _("minor"), patch: _("patch"), revision: _("revision"), rebuild: _("rebuild"),
    convert: _("convert"), remove: _("remove"),
});

const columnsOf = () => [_("Container"), _("Runs"), _("Offered"), _("Change"), _("Size")];

export const Pods = page => {
    const pods = model.pods(page.status), columns = columnsOf();
    return h(Card, { id: "pods", title: _("Pods") },
        pods.length === 0
            ? h("p", null, _("No pod manifest of this node names an image that can be followed."))
            : h(Table, { label: _("Pods"), columns },
                pods.map(pod => h(Pod, { ...page, key: pod.podManifest, pod, columns }))));
};

function Pod(page) {
    const { pod, columns } = page;
    const title = pod.podManifest || _("Images that only the configuration names");
    return h("tbody", { class: "pf-v6-c-table__tbody pod", "data-pod": pod.podManifest },
        h(Row, { class: "pf-v6-c-table__tr pod-row" },
            h("th", { class: "pf-v6-c-table__th", colSpan: columns.length, scope: "rowgroup" },
                h("div", { class: "head" },
                    h("span", null, h("strong", null, title), pod.holds.map(hold =>
                        h(Label, { color: "orange", key: hold.name + hold.reason }, hold.name))),
                    h("span", { class: "buttons" }, h(Actions, page))),
                h(Troubles, page))),
        pod.images.map(image => h(Image, { ...page, key: image.container + image.image, image })));
}

function Actions(page) {
    const { pod, status: s } = page, file = pod.podManifest;
    const busy = s.state === "applying" && _("An update is being applied");
    const held = pod.held.length > 0 && _("It is held");
    const ask = (kind, more) => () => page.ask({ kind, files: [file], ...more });
    const button = (method, name, text, rest) => h(Button, { small: true, "data-do": name, "aria-label": text.replace("…", "") + " " + file, ...rest, disabled: allows(page, method) || rest.disabled }, text);
    return h(Fragment, null,
        pod.can.apply && button("Apply", "apply", _("Apply…"), { kind: "primary", disabled: busy || held, onClick: ask("apply") }),
        pod.can.retry && button("Apply", "retry", _("Try again…"), { disabled: busy, onClick: ask("apply", { retry: true }) }),
        pod.can.rollback && button("Rollback", "rollback", _("Roll back…"), { disabled: busy, onClick: ask("rollback") }),
        pod.can.unhold && button("Unhold", "unhold", _("Unhold"), {
            onClick: () => page.act("unhold", daemon => daemon.unhold([file]), format(_("$0 is not held any more"), file)),
        }),
        pod.can.hold && !pod.can.unhold && button("Hold", "hold", _("Hold…"), { onClick: ask("hold") }));
}

// Holds with what ends them, errors, the last rollback, and references that stay as they are.
function Troubles({ pod, now }) {
    const back = pod.rolledBack;
    return h(Fragment, null,
        pod.holds.map(hold => h("p", { class: "trouble", key: hold.name + hold.reason }, h(Icon, { kind: "warning" }), " ", hold.reason,
            hold.until && h(Fragment, null, " (", _("until"), " ", h(Time, { at: hold.until, now }), ")"), " ",
            h("span", { class: "small" }, model.remedy(hold)))),
        back && h("p", { class: "trouble" }, h(Icon, { kind: "warning" }), " ",
            format(_("Rolled back to $0. Denied on this node: $1."), back.runs.join(", "), back.denied.join(", ")), " ",
            h(Time, { at: back.at, now }), back.reason && h("span", { class: "small" }, " ", back.reason)),
        pod.error && h("p", { class: "trouble error" }, h(Icon, { kind: "danger" }), " ", pod.error),
        pod.untouched?.map(image => h("p", { class: "trouble small", key: image.path + image.line }, format(_("$0 stays as it is: $1"), image.reference, image.reason))));
}

function Image({ image: i, columns, now }) {
    const [container, runs, offered, change, size] = columns;
    return h(Row, null,
        h(Cell, { label: container }, h("div", null, i.container || i.image, i.container && h("div", { class: "small" }, i.image))),
        h(Cell, { label: runs }, h("div", null, h("span", { title: i.running?.digest }, model.name(i.running)),
            i.adopted && h(Label, { title: _("kubelet started it by itself") }, _("adopted")),
            i.down && h("div", { class: "error" }, h(Label, { color: "red" }, i.down.starting ? _("starting") : _("does not run")), " ", [i.down.reason, i.down.message].filter(Boolean).join(": ")),
            i.denied && h("div", { class: "error" }, h(Label, { color: "red" }, _("denied")), " ", i.denied),
            i.withdrawn && h("div", { class: "error" }, h(Label, { color: "red" }, _("withdrawn")), " ", i.withdrawn.reason))),
        h(Cell, { label: offered }, h("div", null, h("span", { title: i.offered?.digest }, model.name(i.offered)), h(Offer, { image: i, now }))),
        h(Cell, { label: change }, i.change ? h("div", null, h(Label, { color: changeColors[i.change] }, changes()[i.change] ?? i.change)) : "–"),
        h(Cell, { label: size, class: "pf-v6-c-table__td number" }, i.size ? bytes(i.size) : "–"));
}

function Offer({ image: i, now }) {
    const refused = model.refused(i);
    return h(Fragment, null,
        i.signedBy && h(Label, { color: "green", title: i.signedBy }, _("signed")),
        i.set && h(Label, null, format(_("set $0"), i.set)),
        i.offered && !i.staged && h("div", { class: "small" }, _("not on the node yet")),
        i.rolloutAt && h("div", { class: "small" }, _("applied automatically"), " ", h(Time, { at: i.rolloutAt, now })),
        refused.length > 0 && h("details", null,
            h("summary", null, format(ngettext("$0 newer tag is not offered", "$0 newer tags are not offered", refused.length), refused.length)),
            h("ul", null, refused.map(r => h("li", { key: r.tag + r.rule },
                h("strong", null, r.tag), " ", h(Label, null, r.rule), " ", r.reason,
                r.key && h("span", { class: "small" }, " ", format(_("Allowed by $0"), r.key)))))),
        i.rebuildsOnly && h("div", { class: "small" }, format(_("Only rebuilds are offered: the tag $0 has no version that can be compared."), i.rebuildsOnly.tag)),
        i.notes?.map(note => h("div", { class: "small", key: note }, note)),
        i.error && i.errorKind !== "source" && h("div", { class: "small error" }, i.error)); // else a registry's, shown below
}
