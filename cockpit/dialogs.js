// SPDX-License-Identifier: Apache-2.0
// What a person confirms: what changes, what restarts, how long it takes.
// @ts-check

import { h, Fragment, Alert, Button, Dialog, Field, Label, Spinner } from "./ui.js";
import { _, format, ngettext, zoneName } from "./i18n.js";
import { Result } from "./result.js";
import { Brings } from "./pods.js";
import { Edits, Story } from "./work.js";
import * as model from "./model.js";

export function Dialogs(page) {
    const { dialog } = page;
    const files = dialog.files ?? [];
    const title = files.length <= 3 ? files.join(", ") : format(_("$0 pods"), files.length);
    const kinds = { apply: Apply, rollback: Rollback, hold: Hold, resume: Resume, lock: ReleaseLock, catalog: ForgetCatalog, registry: Registry };
    return h(kinds[dialog.kind], { ...page, files, pods: dialog.pods ?? [], title });
}

// A dialog of the page: busy while its act goes on, with what came of it where that failed.
function Ask({ page, children, ...rest }) {
    const { dialog, status, close, ask } = page;
    const moved = dialog.problem?.moved || model.isMoved(status, dialog);
    const { kind, files, retry } = dialog;
    const top = element => element?.parentElement.scrollTo(0, 0); // what is new is not below the edge
    return h(Dialog, { ...rest, busy: Boolean(dialog.doing), again: moved, onAgain: () => ask({ kind, files, retry }), onClose: close },
        h("div", { id: "dialog-problem", role: "alert" },
            moved
                ? h(Alert, { kind: "warning", title: _("The offer has changed since this dialog was opened") }, _("Nothing was applied. Read again what would be applied now."))
                : dialog.problem && h("div", { key: dialog.problem.id, ref: element => top(element?.parentElement) }, h(Result, { result: dialog.problem }))),
        dialog.doing > 0 && h("div", { key: "doing", ref: top }, h(Story, page)),
        children);
}

const Moves = ({ pods, of }) =>
    pods.map(pod => h(Fragment, { key: pod.podManifest },
        h("h2", { class: "pf-v6-c-title pf-m-md" }, pod.podManifest),
        h("ul", { class: "moves" }, pod[of].map(move => h("li", { key: move.container },
            h("strong", null, move.container), " ", h("span", { class: "release" }, move.from, " → ", move.to), " ", move.change && h(Label, null, model.changeName(move.change)),
            h("div", { class: "small digest" }, move.digest),
            h(Brings, { brings: move.brings }),
            move.reason && h("div", { class: "error" }, format(_("Last time: $0"), move.reason))))),
        of === "moves" && h(Edits, { edits: pod.edits ?? [] })));

const ControlPlane = ({ files }) => files.some(model.isControlPlane) &&
    h("p", { class: "error" }, _("The Kubernetes control plane of this node is away while its pod restarts."));

function Apply(page) {
    const { pods, files, title, dialog, act } = page;
    const { retry, expect } = dialog;
    if (!dialog.doing && !dialog.problem && !pods.some(pod => retry ? pod.can.retry : pod.can.apply)) // another tab, or another person, was faster
        return h(Ask, { page, title: _("There is nothing to apply any more"), action: _("Apply"), unread: _("There is nothing to apply any more") },
            h("p", null, _("The updates were applied or withdrawn meanwhile.")));
    return h(Ask, {
        page, title: format(retry ? _("Try $0 again?") : _("Apply updates of $0?"), title), action: retry ? _("Try again") : _("Apply"),
        onDo: () => act({ what: "apply", files, done: format(ngettext("$0 runs the update and is healthy", "$0 run the updates and are healthy", files.length), title) }, daemon => daemon.apply(files, Boolean(retry), expect)),
    },
    retry && pods.some(pod => pod.retries.length > 0) && h("p", null, _("This release was denied on this node. It is allowed again and applied.")),
    h(Moves, { pods, of: retry && pods.some(pod => pod.retries.length > 0) ? "retries" : "moves" }),
    h("details", { id: "inside", onToggle: event => event.target.open && page.inside() },
        h("summary", null, _("What changes inside the images")), h(Inside, dialog)),
    h("p", null, _("Each of these pods restarts and is away for some seconds. Then the agent watches it for up to some minutes. It rolls back an update that does not come up.")),
    h(ControlPlane, { files }),
    h("p", { class: "small" }, _("If you close this page, the pod that restarts now goes on. The agent does not begin with the others.")));
}

// The packages that change, and what each offered image says of itself.
function Inside({ inside }) {
    if (!inside)
        return h("p", null, h(Spinner), " ", _("Asking…"));
    if (inside.error)
        return h(Alert, { kind: "warning", title: _("The changes could not be read") }, inside.error);
    return inside.value.map(image => h(Fragment, { key: image.podManifest + image.container },
        h("h3", { class: "pf-v6-c-title pf-m-md" }, image.container),
        image.error && h("p", { class: "error", dir: "ltr" }, image.error),
        !image.error && !image.packages && h("p", null, _("The images have no list of packages.")),
        image.packages && h("p", { class: "small" }, format(_("Packages that change: $0. The same: $1."), image.packages.length, image.same)),
        image.packages?.length > 0 && h("ul", { dir: "ltr" }, image.packages.map(p => h("li", { key: p.format + p.name + p.arch },
            h("strong", null, p.name), " ", p.from || "–", " → ", p.to || "–", " ", h("span", { class: "small" }, p.source)))),
        image.labels.map(label => h("p", { class: "small", key: label.name }, label.name, ": ",
            label.link ? h("a", { href: label.to, target: "_blank", rel: "noopener noreferrer" }, label.to) : label.to))));
}

function Rollback(page) {
    const { pods, files, title, act } = page;
    return h(Ask, {
        page, title: format(_("Roll back $0?"), title), action: _("Roll back"), danger: true,
        onDo: () => act({ what: "rollback", files, done: format(ngettext("$0 runs the previous release again", "$0 run their previous release again", files.length), title) }, daemon => daemon.rollback(files)),
    },
    pods.every(pod => pod.returns.length > 0) ? h(Moves, { pods, of: "returns" }) : h("p", null, _("Each container returns to its last known good release.")),
    h("p", null, _("The pod restarts and is away for some seconds. The release that runs now is denied on this node, until you try it again or a newer release comes. Data is not changed.")),
    h(ControlPlane, { files }));
}

function Hold(page) {
    const { title, files, dialog, act, set } = page;
    const wrong = text => set({ dialog: { ...dialog, problem: { kind: "danger", title: text, text: "", outcomes: [] } } });
    const run = fields => {
        const until = fields.get("until") ? new Date(fields.get("until")) : null, reason = fields.get("reason").trim();
        const length = new TextEncoder().encode(reason).length;
        if (until && until <= new Date())
            return wrong(_("The end is in the past."));
        if (length > model.maxReason)
            return wrong(format(_("The reason has $0 bytes, and at most $1 are kept."), length, model.maxReason));
        act({ what: "hold", files, done: dialog.all ? _("Everything is held") : format(_("$0 is held"), title) },
            daemon => daemon.hold(files, Boolean(dialog.all), until, reason));
    };
    return h(Ask, { page, title: dialog.all ? _("Hold everything?") : format(_("Hold $0?"), title), action: _("Hold"), onDo: run },
        h("p", null, _("Updates are still downloaded, and none is applied.")),
        h("div", { class: "pf-v6-c-form" },
            h(Field, { id: "hold-reason", name: "reason", label: _("Reason"), autocomplete: "off" }),
            h(Field, {
                id: "hold-until", name: "until", label: _("Until"), type: "datetime-local",
                help: format(_("In the time zone of your browser, $0. Empty: until Resume."), zoneName()),
            })));
}

// Only in mode auto: without it, the end of a hold restarts nothing.
function Resume(page) {
    return h(Ask, {
        page, title: _("Resume everything?"), action: _("Resume everything"),
        onDo: () => page.act({ what: "resume", done: _("All holds have ended") }, daemon => daemon.resume([], true)),
    },
    h("p", null, _("Updates are applied automatically on this node. When all holds end, pods with updates restart in the next maintenance window, or at once where one is open.")));
}

function ReleaseLock(page) {
    return h(Ask, {
        page, title: _("Release the fleet lock?"), action: _("Release the lock"), danger: true,
        onDo: () => page.act({ what: "lock", done: _("The lock was released") }, daemon => daemon.releaseLock()),
    },
    h("p", null, _("Other nodes may then restart their pods, although a pod of this node is not healthy. Do this only when the cluster can spare both.")));
}

function ForgetCatalog(page) {
    return h(Ask, {
        page, title: _("Forget the verified version of the release catalog?"), action: _("Forget it"), danger: true,
        onDo: () => page.act({ what: "catalog", done: _("The catalog was read again") }, daemon => daemon.forgetCatalog()),
    },
    h("p", null, _("The node then takes any version with a valid signature, also an older one. Do this only when the publisher has gone back on purpose.")));
}

function Registry(page) {
    const { dialog, act, ask, jump } = page;
    const { kind, registry, enable, gate } = dialog;
    return h(Ask, {
        page, unread: !dialog.preview && _("The changes are still being read."), title: format(enable ? _("Enable the local registry for $0?") : _("Disable the local registry for $0?"), registry),
        action: enable ? _("Enable") : _("Disable"),
        onDo: () => act({ what: "registry", done: format(enable ? _("The local registry answers for $0") : _("The local registry no longer answers for $0"), registry) },
            daemon => enable ? daemon.enableLocalRegistry(registry, Boolean(gate)) : daemon.disableLocalRegistry(registry)),
    },
    enable
        ? h(Fragment, null,
            h("p", null, _("containerd then asks this node where no other host answers: pods start without the registry. No pod restarts.")),
            h("label", null, h("input", { type: "checkbox", id: "gate", checked: gate, onChange: event => ask({ kind, registry, enable, gate: event.target.checked }) }), " ",
                _("Ask this node first: pods start only with approved images.")),
            h("p", { class: "small" }, _("It answers while its socket unit runs."), " ",
                h(Button, { kind: "link", small: true, onClick: () => jump(socketUnit) }, _("Show the socket unit"))))
        : h("p", null, _("containerd then asks only the other hosts. No pod restarts.")),
    h(Preview, dialog));
}

const socketUnit = "/system/services#/image-update-agent-local-registry.socket";

// What changes in hosts.toml; without it the act may still be right.
function Preview({ preview }) {
    if (!preview)
        return h("p", null, h(Spinner), " ", _("Asking…"));
    if (preview.error)
        return h(Alert, { kind: "warning", title: _("The changes could not be read") }, preview.error);
    const { changed, file, diff, notes } = preview.value;
    return h("div", { id: "preview" },
        h("p", null, format(changed ? _("$0 becomes:") : _("$0 stays as it is."), file)),
        changed && h("pre", { tabIndex: 0, dir: "ltr" }, diff),
        notes.map(note => h("p", { class: "small", key: note }, note)));
}
