// SPDX-License-Identifier: Apache-2.0
// What a person confirms: what changes, what restarts, how long it takes.
// @ts-check

import { h, Fragment, Dialog, Field, Label } from "./ui.js";
import { _, format } from "./i18n.js";
import * as model from "./model.js";

export function Dialogs(page) {
    const { dialog } = page;
    return h({ apply: Apply, rollback: Rollback, hold: Hold }[dialog.kind], { ...page, pods: dialog.pods, title: titleOf(dialog.files) });
}

const titleOf = files => files.length <= 3 ? files.join(", ") : format(_("$0 pods"), files.length);

const Moves = ({ pods, of }) =>
    pods.map(pod => h(Fragment, { key: pod.podManifest },
        h("h2", { class: "pf-v6-c-title pf-m-md" }, pod.podManifest),
        h("ul", { class: "moves" }, pod[of].map(move => h("li", { key: move.container },
            h("strong", null, move.container), " ", move.from, " → ", move.to, " ", move.change && h(Label, null, move.change))))));

function Apply({ pods, title, dialog, act, close }) {
    const { files } = dialog;
    const run = daemon => daemon.apply(files, Boolean(dialog.retry), dialog.expect);
    return h(Dialog, {
        title: format(dialog.retry ? _("Try $0 again?") : _("Apply updates of $0?"), title),
        action: dialog.retry ? _("Try again") : _("Apply"), onClose: close,
        onDo: () => { close(); act("apply", run, format(_("$0 runs the update, and was proved"), title)); },
    },
    dialog.retry && h("p", null, _("The releases that were rolled back are offered again, and applied.")),
    h(Moves, { pods, of: "moves" }),
    h("p", null, _("Each of these pods restarts and is away for some seconds. Then it is watched until it is proved, which takes up to some minutes. An update that does not come up is rolled back.")),
    files.some(model.isControlPlane) && h("p", { class: "error" }, _("The Kubernetes control plane of this node is away while its pod restarts.")),
    h("p", { class: "small" }, _("A pod that restarts already goes on when you close this page. What has not begun by then is not applied.")));
}

function Rollback({ pods, title, dialog, act, close }) {
    const { files } = dialog;
    const isNamed = pods.every(pod => pod.returns.length > 0);
    return h(Dialog, {
        title: format(_("Roll back $0?"), title), action: _("Roll back"), danger: true, onClose: close,
        onDo: () => { close(); act("rollback", daemon => daemon.rollback(files), format(_("$0 runs what ran before"), title)); },
    },
    isNamed ? h(Moves, { pods, of: "returns" }) : h("p", null, _("Each container returns to the last release that ran well before.")),
    h("p", null, _("The pod restarts and is away for some seconds. What runs now is denied on this node, until Try again or a newer release. Data is not changed.")),
    files.some(model.isControlPlane) && h("p", { class: "error" }, _("The Kubernetes control plane of this node is away while its pod restarts.")));
}

function Hold({ title, dialog, act, close, ask }) {
    const run = fields => {
        const until = fields.get("until") ? new Date(fields.get("until")) : null;
        if (until && until <= new Date())
            return ask({ ...dialog, error: _("The end is in the past.") });
        close();
        act("hold", daemon => daemon.hold(dialog.files, Boolean(dialog.all), until, fields.get("reason").trim()),
            dialog.all ? _("Everything is held") : format(_("$0 is held"), title));
    };
    return h(Dialog, {
        title: dialog.all ? _("Hold everything?") : format(_("Hold $0?"), title), action: _("Hold"),
        onClose: close, onDo: run, error: dialog.error,
    },
    h("p", null, _("Updates are still downloaded, and none is applied.")),
    h("div", { class: "pf-v6-c-form" },
        h(Field, { id: "hold-reason", name: "reason", label: _("Reason"), maxLength: 200, autocomplete: "off" }),
        h(Field, { id: "hold-until", name: "until", label: _("Until"), type: "datetime-local", help: _("Empty: until Unhold.") })));
}
