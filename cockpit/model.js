// SPDX-License-Identifier: Apache-2.0
// What the page shows of a status: pure, without a document and without a clock.
// @ts-check

import { _, ngettext, format } from "./i18n.js";

/** How old a check may be, in milliseconds, so that the page still calls the node current while polling is off. */
const freshCheck = 24 * 3600 * 1000;

const states = () => ({
    current: { title: _("Up to date"), icon: "ok" },
    staged: { title: _("Updates are ready"), icon: "info" },
    applying: { title: _("An update is being applied"), icon: "busy" },
    held: { title: _("Updates are held"), icon: "warning" },
    stale: { title: _("A registry does not answer"), icon: "warning" },
    failed: { title: _("Something failed"), icon: "danger" },
    unchecked: { title: _("Not checked yet"), icon: "info" },
});

/**
 * The node's state in words. Green is only a node that was checked, has something to check, and where nothing runs.
 * @param {any} s the status
 * @param {{up: boolean, busy: boolean, now: Date}} page
 */
export function headline(s, page) {
    const state = states()[s.state] ?? { title: s.state, icon: "info" };
    if (!page.up)
        return { title: format(_("Last known: $0"), state.title), icon: "unknown" };
    if (page.busy && ["current", "unchecked", "stale"].includes(s.state))
        return { title: _("Checking for updates"), icon: "busy" };
    if (mustNotRun(s).length > 0 && s.state !== "applying")
        return { title: _("Something runs that must not run any more"), icon: "danger" };
    if (s.state !== "current")
        return state;
    if (!s.lastCheck)
        return states().unchecked;
    if (s.images.length === 0)
        return { title: _("No image is followed"), icon: "info" };
    if (!s.nextCheck && page.now.getTime() - new Date(s.lastCheck).getTime() > freshCheck)
        return { title: _("Up to date at the last check"), icon: "unknown" };
    return state;
}

/** The reasons that are about what runs and is withdrawn, or denied on this node. */
const mustNotRun = s => (s?.reasons ?? []).filter(r => ["withdrawn", "denied"].includes(r.kind));

/** Whether the reason of the state says more than the pods and registries below it. */
export const hasReason = s => s.reason !== "" &&
    (["applying", "held", "failed"].includes(s.state) || s.state === "stale" && silent(s).length === 0 || mustNotRun(s).length > 0);

/** The mark beside the page's name in Cockpit's menu: {type, title}; null: not known yet. */
export function mark({ read, up, status: s }) {
    if (!read)
        return null;
    if (!up)
        return { type: "error", title: _("The image update agent does not run") };
    if (s?.state === "failed" || mustNotRun(s).length > 0)
        return { type: "error", title: s.reason };
    const waiting = s?.updates.length &&
        format(ngettext("$0 update waits for approval", "$0 updates wait for approval", s.updates.length), s.updates.length);
    if (s?.state === "stale")
        return { type: "warning", title: [states().stale.title, waiting].filter(Boolean).join("; ") };
    if (waiting)
        return { type: "info", title: waiting };
    return { type: null, title: states()[s?.state]?.title ?? "" };
}

/** Whether something runs that is not an apply: a check or a pull. */
export const isBusy = page => page.pulls.length > 0 || page.work !== null || page.doing === "check" ||
    ["checking", "staging"].includes(page.status?.activity);

/** What a release is called. */
export const name = n => !n ? "–" : n.tag || n.digest.replace(/^sha256:/, "").slice(0, 12);

const isPersons = hold => hold.by === "person";

/** What ends a hold, as the daemon says it: each part in the language of the session, whole or up to its ": ". */
export function remedy(hold) {
    if (isPersons(hold))
        return _("It ends by Unhold."); // which the page has a button for
    return (hold.remedy ?? "").split("; ").map(part => {
        const [lead, ...values] = part.split(": ");
        return _(part) !== part || values.length === 0 ? _(part) : [_(lead), ...values].join(": ");
    }).join("; ");
}

/**
 * The pod manifests with their images, in the order of the status; then images that only the configuration names.
 * can says which actions make sense; moves and returns are what Apply and Roll back change.
 */
export function pods(s) {
    const byFile = new Map(s.podManifests.map(pod => [pod.podManifest, { ...pod, images: [] }]));
    const beside = new Map();
    const denied = (s.reasons ?? []).filter(r => r.kind === "denied");
    for (const one of s.images) {
        const file = one.podManifest;
        const is = denied.find(r => r.podManifest === file && r.container === one.container && r.digest === one.running?.digest);
        const image = is ? { ...one, denied: is.text } : one;
        if (!byFile.has(file) && !beside.has(file))
            beside.set(file, { podManifest: file, holds: image.holds ?? [], untouched: [], error: "", change: "", images: [] });
        (byFile.get(file) ?? beside.get(file)).images.push(image);
    }
    const standing = standingHolds(s);
    return [...byFile.values(), ...beside.values()].map(pod => withActions(s, pod, standing));
}

function withActions(s, pod, standing) {
    const offered = pod.images.filter(i => i.offered && i.staged);
    const moves = offered.map(i => ({ container: i.container || i.image, from: name(i.running), to: name(i.offered), change: i.change }));
    const returns = pod.images.filter(previousOf).map(i => ({ container: i.container || i.image, from: name(i.running), to: name(previousOf(i)) }));
    const failed = s.reasons?.some(r => ["rolled-back", "not-up"].includes(r.kind) && r.podManifest === pod.podManifest);
    const isFile = pod.podManifest !== "";
    const held = (pod.holds ?? []).filter(hold => !hold.onlyAuto);
    return {
        ...pod, moves, returns, held, holds: pod.holds ?? [],
        can: {
            apply: isFile && (offered.length > 0 || ["remove", "convert"].includes(pod.change)),
            retry: isFile && (failed || Boolean(pod.rolledBack)),
            rollback: isFile && (pod.canRollBack ?? pod.images.length > 0), // an older daemon does not say
            hold: isFile && pod.images.length > 0,
            unhold: isFile && (pod.holds?.some(h => isPersons(h) && h.image !== "*") ||
                standing.some(h => isEnded(h) && pod.images.some(i => i.image === h.repository))),
        },
    };
}

/**
 * A dialog with what it shows, as it was when it opened: a status that comes meanwhile changes neither the text that a
 * person reads nor what the person approves. expect are the digests that an apply is for; a retry offers others.
 */
export function opened(s, dialog) {
    if (dialog.pods)
        return dialog;
    const shown = pods(s).filter(pod => dialog.files.includes(pod.podManifest));
    const expect = dialog.kind !== "apply" || dialog.retry ? [] : shown.flatMap(pod => pod.images).filter(i => i.offered)
        .map(i => ({ image: i.image, digest: i.offered.digest }));
    return { ...dialog, pods: shown, expect };
}

/** The rollback target of an image: what the daemon names, else what ran well before; null: none is known. */
function previousOf(image) {
    if (image.previous !== undefined)
        return image.previous;
    return image.lastGood && image.running && image.lastGood.digest !== image.running.digest ? image.lastGood : null;
}

/** The holds of persons and of the configuration, also of pods that are current. */
export const standingHolds = s => s.standingHolds ?? [];

/** Whether Unhold ends a standing hold. */
export const isEnded = hold => hold.by.kind === "person";

export const isEverythingHeld = s => standingHolds(s).some(hold => hold.repository === "*" && isEnded(hold));

/** What the node does with the lock of the fleet; empty: nothing. */
export function lockText(lock) {
    if (lock.kept)
        return _("kept, because a pod did not come up: no other node goes on");
    const texts = { waiting: _("waited for"), held: _("this node has it"), releasing: _("being given back") };
    return texts[lock.state] ?? "";
}

/** Who did something: {kind, uid, user}. */
export function actor(by) {
    const kinds = {
        person: by.user || (by.uid === undefined ? _("a person") : format(_("user $0"), by.uid)),
        configuration: _("the configuration"), auto: _("mode auto"), agent: _("the agent"), kubelet: _("kubelet"),
    };
    return kinds[by.kind] ?? by.kind;
}

/** The pods that can be applied now. */
export const applicable = s => pods(s).filter(pod => pod.can.apply && pod.held.length === 0);

/** Sources that do not answer. */
export const silent = s => s.sources.filter(source => source.failures > 0);

/** Newer tags of an image that are not offered: {tag, rule, reason, key}. */
export function refused(image) {
    const byTag = new Map();
    for (const refusal of [...(image.refused ?? []), ...(image.notAllowed ?? [])])
        byTag.set(refusal.tag + " " + refusal.rule, refusal);
    return [...byTag.values()];
}

/** What the control plane's pods interrupt while they restart. */
export const isControlPlane = file => /^(etcd|kube-(apiserver|controller-manager|scheduler))\.ya?ml$/.test(file);

/**
 * What a method has answered. A check that found a registry away is no success.
 * @param {string} what
 * @param {any} answer
 * @param {string} done
 */
export function outcome(what, answer, done) {
    if (what !== "check")
        return { kind: "ok", title: done, text: "" };
    const [state, reason] = answer;
    if (["stale", "failed", "unchecked"].includes(state))
        return { kind: "warning", title: states()[state].title, text: state === "failed" ? reason : "" };
    return { kind: "ok", title: done, text: "" };
}

/**
 * An error of a method as {kind, title, text}.
 * @param {{name?: string, message?: string, problem?: string}} error
 */
export function problem(error) {
    const text = error.message ?? "";
    switch ((error.name ?? "").split(".").pop()) {
    case "InteractiveAuthorizationRequired":
    case "AccessDenied":
        return { kind: "warning", title: _("Not allowed"), text: _("Turn on administrative access, or ask an admin for a polkit rule.") + " (" + text + ")" };
    case "Held":
        return { kind: "warning", title: _("Updates are held"), text };
    case "OfferMoved":
        return { kind: "warning", title: _("The offer has changed, and nothing was applied"), text };
    case "NothingToDo":
        return { kind: "info", title: _("There is nothing to do"), text: "" };
    case "LimitsExceeded":
        return { kind: "warning", title: _("Too many requests at once"), text };
    case "NoReply":
    case "Disconnected":
        return { kind: "danger", title: _("The daemon ended before it answered"), text: _("It continues what it has begun when it runs again.") };
    }
    if (["disconnected", "terminated", "not-found"].includes(error.problem ?? ""))
        return { kind: "danger", title: _("The daemon ended before it answered"), text: _("It continues what it has begun when it runs again.") };
    return { kind: "danger", title: _("It failed"), text: text || error.problem || "" };
}
