// SPDX-License-Identifier: Apache-2.0
// Tests of model.js and of what daemon.js hears, which a browser runs: failures() returns what is not as it should be.
// @ts-check

import * as model from "../model.js";
import { Daemon } from "../daemon.js";

const now = new Date("2026-11-20T12:00:00Z");

const image = more => ({
    image: "registry.suse.com/caasp/v4/velum", container: "dashboard", podManifest: "velum.yaml",
    running: { tag: "4.0.0-rev1-build1.3", digest: "sha256:aaaa" }, lastKnownGood: null, offered: null, change: "", staged: false,
    holds: [], refused: [], notAllowed: [], notes: [], error: "", ...more,
});
const pod = more => ({ podManifest: "velum.yaml", pod: "velum", change: "", holds: [], left: [], error: "", rolledBack: null, ...more });
const status = more => ({
    state: "current", reason: "", reasons: [], since: "2026-11-20T08:00:00Z", lastCheck: "2026-11-20T11:00:00Z",
    nextCheck: "2026-11-20T23:00:00Z", sources: [], images: [image()], podManifests: [pod()], updates: [], notAllowed: [], ...more,
});
const back = {
    at: "", byHand: false, runs: [], denied: [], retries: [{ image: "registry.suse.com/caasp/v4/velum", tag: "4.0.0-rev1-build1.9", digest: "sha256:ffff", reason: "it crashed" }],
};
const offer = { offered: { tag: "4.0.0-rev1-build1.5", digest: "sha256:bbbb" }, change: "rebuild", staged: true };

// What the page shows once the daemon has said some progress, and then an answer arrives that is older.
const shown = (said, status) => {
    const page = { pulls: [], work: null };
    const daemon = Object.assign(Object.create(Daemon.prototype), { client: {}, pulls: new Map(), ended: new Set(), report: change => Object.assign(page, change) });
    said.forEach(progress => daemon.progress(progress));
    daemon.seen(status);
    return [page.pulls.map(pull => pull.reference), page.work?.reference];
};
const older = { pulls: [{ reference: "a", phase: "unpacking" }, { reference: "b", phase: "unpacking" }], progress: { reference: "velum", phase: "verifying" } };

const head = (more, page) => model.headline(status(more), { up: true, busy: false, now, ...page }).icon;
const first = more => model.pods(status(more))[0];
const can = more => Object.entries(first(more).can).filter(([, yes]) => yes).map(([what]) => what).join(" ");

/** Each case: what is tested, what it gives, what is wanted. */
const cases = () => [
    ["a checked node without updates is green", head({}), "ok"],
    ["a node that was never checked is not green", head({ lastCheck: null }), "info"],
    ["nor is one of the state unchecked", head({ state: "unchecked" }), "info"],
    ["which says when the first check is", [null, "2026-11-20T13:20:00Z"].map(nextCheck => model.headline(status({ state: "unchecked", nextCheck }), { up: true, busy: false, now }).title.replace(/ at .*/, " at")),
        ["Not checked yet", "Not checked yet: the first check is at"]],
    ["nor one that is being checked", head({}, { busy: true }), "busy"],
    ["nor one without a daemon", head({}, { up: false }), "unknown"],
    ["nor one without images", head({ images: [], podManifests: [] }), "info"],
    ["nor one whose polling is off and whose check is old", head({ nextCheck: null, lastCheck: "2026-11-18T11:00:00Z" }), "unknown"],
    ["without polling, a check of today counts", head({ nextCheck: null }), "ok"],
    ["an unknown state is shown as it is", model.headline(status({ state: "new" }), { up: true, busy: false, now }).title, "new"],
    ["what must not run is the headline of every state", ["staged", "held", "stale", "failed", "current"]
        .map(state => head({ state, reasons: [{ kind: "withdrawn" }] })), ["danger", "danger", "danger", "danger", "danger"]],
    ["so is what is denied", head({ state: "held", reasons: [{ kind: "denied" }] }), "danger"],
    ["what only waits is not", head({ state: "stale", reasons: [{ kind: "source" }, { kind: "approval" }] }), "warning"],
    ["its reason is shown", model.reasons(status({ reasons: [{ kind: "denied", podManifest: "velum.yaml", tag: "4", text: "t" }] })),
        [{ text: "velum.yaml: 4 runs, although it is denied on this node.", cause: "t", file: "velum.yaml" }]],
    ["a denied release that runs is named at its container", ["dashboard", "other"].map(container => first({
        reasons: [{ kind: "denied", podManifest: "velum.yaml", container, digest: "sha256:aaaa", text: "t" }],
    }).images[0].denied ?? ""), ["t", ""]],
    ["no other state is green", ["staged", "applying", "held", "stale", "failed"].map(state => head({ state })), ["info", "busy", "warning", "warning", "danger"]],

    ["what pods and registries show is no reason above them", model.reasons(status({ reasons: ["hold", "source", "approval", "none"].map(kind => ({ kind, text: "t" })) })), []],
    ["what nobody could check is no failure", [model.reasons(status({ reasons: [{ kind: "not-checked", podManifest: "velum.yaml", text: "t" }] }))[0].text, model.failure({ kind: "not-checked", text: "t" }).cause],
        ["velum.yaml runs, but nobody can tell whether it works.", "t"]],
    ["an unknown reason is shown as the daemon says it", model.reasons(status({ reasons: [{ kind: "new", text: "t" }] })), [{ text: "t", cause: "", file: "" }]],
    ["what failed is the headline, as in the command line", ["rolled-back", "unlock"].map(kind => model.headline(status({ state: "failed", reasons: [{ kind, podManifest: "velum.yaml" }, { kind: "unlock" }].slice(0, kind === "unlock" ? 1 : 2) }),
        { up: true, busy: false, now }).title), ["velum.yaml was rolled back (and 1 more)", "The fleet lock cannot be released"]],
    ["each state says what to do, but one that waits by itself", ["applying", "failed", "held", "stale", "staged", "unchecked", "current"]
        .map(state => model.advice(status({ state }), { up: true }) !== ""), [true, true, true, true, true, false, false]],
    ["one hold says what ends it", model.advice(status({ state: "held", podManifests: [pod({ holds: [{ name: "disk", reason: "", remedy: "free some" }] })] }), { up: true }), "free some"],
    ["what was rolled back is in no hurry", model.advice(status({ state: "failed", reasons: [{ kind: "rolled-back" }] }), { up: true }).startsWith("There is no hurry"), true],
    ["a node without mode auto says nothing of windows", model.autoText(undefined, now), ""],
    ["a window names its end and its time zone", /UTC|GMT/.test(model.autoText({ open: true, changesAt: "2026-11-20T13:20:00Z" }, now)), true],

    ["nothing is marked before the first answer", model.mark({ read: false, up: false, status: null }), null],
    ["a daemon that is away is marked", model.mark({ read: true, up: false, status: status() }).type, "error"],
    ["so is a failure, with its reason", model.mark({ read: true, up: true, status: status({ state: "failed", reason: "r" }) }), { type: "error", title: "r" }],
    ["and a registry that is away", model.mark({ read: true, up: true, status: status({ state: "stale" }) }).type, "warning"],
    ["what waits is said beside it", model.mark({ read: true, up: true, status: status({ state: "stale", updates: [{}] }) }).title,
        "A registry does not answer; 1 update waits for approval"],
    ["what must not run is marked, too", model.mark({ read: true, up: true, status: status({ state: "held", reason: "r", reasons: [{ kind: "withdrawn" }] }) }), { type: "error", title: "r" }],
    ["a hidden page hears the state alone", model.mark({ read: true, up: true, status: status(), heard: { state: "staged", reason: "r" } }), { type: "info", title: "Updates are ready" }],
    ["and updates that wait", model.mark({ read: true, up: true, status: status({ updates: [{}, {}] }) }), { type: "info", title: "2 updates wait for approval" }],
    ["a current node has no mark", model.mark({ read: true, up: true, status: status() }).type, null],

    ["a current pod can be rolled back and held", can({}), "rollback hold"],
    ["a staged offer can be applied", can({ images: [image(offer)] }), "apply rollback hold"],
    ["one that is not staged cannot", can({ images: [image({ ...offer, staged: false })] }), "rollback hold"],
    ["what has no rollback target cannot be rolled back", can({ podManifests: [pod({ canRollBack: false })] }), "hold"],
    ["what was rolled back can be tried again", can({ podManifests: [pod({ rolledBack: { at: "", byHand: false, runs: [], left: [] } })] }), "retry rollback hold"],
    ["so can what did not come up", can({ reasons: [{ kind: "not-up", podManifest: "velum.yaml" }] }), "retry rollback hold"],
    ["another pod cannot", can({ reasons: [{ kind: "not-up", podManifest: "etcd.yaml" }] }), "rollback hold"],
    ["a person's hold can be ended", can({ podManifests: [pod({ holds: [{ name: "hold", by: "person", image: "x", reason: "" }] })] }), "rollback hold resume"],
    ["a hold of the configuration cannot", can({ podManifests: [pod({ holds: [{ name: "hold", by: "configuration", image: "x", reason: "" }] })] }), "rollback hold"],
    ["a hold on everything is ended for everything", can({ podManifests: [pod({ holds: [{ name: "hold", by: "person", image: "*", reason: "" }] })] }), "rollback hold"],
    ["a standing hold can be ended, too", can({ standingHolds: [{ repository: "registry.suse.com/caasp/v4/velum", name: "hold", by: { kind: "person" } }] }), "rollback hold resume"],
    ["images of the configuration can only be seen", can({ podManifests: [], images: [image({ podManifest: "" })] }), ""],

    ["Apply shows what changes", first({ images: [image(offer)] }).moves, [{ container: "dashboard", from: "4.0.0-rev1-build1.3", to: "4.0.0-rev1-build1.5", digest: "sha256:bbbb", change: "rebuild" }]],
    ["Apply sends the digests that it shows", model.opened(status({ images: [image(offer)] }), { kind: "apply", files: ["velum.yaml"] }).expect,
        [{ image: "registry.suse.com/caasp/v4/velum", digest: "sha256:bbbb" }]],
    ["those of other pods are not shown", model.opened(status({ images: [image(offer)] }), { kind: "apply", files: ["etcd.yaml"] }).expect, []],
    ["Try again names the release that failed, and why", first({ images: [image()], podManifests: [pod({ rolledBack: back })] }).retries,
        [{ container: "dashboard", from: "4.0.0-rev1-build1.3", to: "4.0.0-rev1-build1.9", digest: "sha256:ffff", reason: "it crashed" }]],
    ["and sends its digest", model.opened(status({ images: [image()], podManifests: [pod({ rolledBack: back })] }), { kind: "apply", retry: true, files: ["velum.yaml"] }).expect,
        [{ image: "registry.suse.com/caasp/v4/velum", digest: "sha256:ffff" }]],
    ["an offer that moves under an open dialog is noticed", ["sha256:bbbb", "sha256:cccc"].map(digest => model.isMoved(
        status({ images: [image({ ...offer, offered: { tag: "t", digest } })] }), model.opened(status({ images: [image(offer)] }), { kind: "apply", files: ["velum.yaml"] }))), [false, true]],
    ["not while its own apply goes on", model.isMoved(status({ state: "applying" }), { ...model.opened(status({ images: [image(offer)] }), { kind: "apply", files: ["velum.yaml"] }), doing: 1 }), false],
    ["nor after its own apply has failed", model.isMoved(status({ images: [image()] }), { ...model.opened(status({ images: [image(offer)] }), { kind: "apply", files: ["velum.yaml"] }), problem: {} }), false],
    ["an open dialog keeps its files and digests while a status comes", (() => {
        const dialog = model.opened(status({ images: [image(offer)] }), { kind: "apply", files: ["velum.yaml"] });
        const later = model.opened(status({ images: [], podManifests: [] }), dialog);
        return [later.files, later.expect.length, later.pods.length];
    })(), [["velum.yaml"], 1, 1]],
    ["Roll back names its target", first({ images: [image({ previous: { tag: "4.0.0-rev1-build1.1", digest: "sha256:cccc" } })] }).returns, [{ container: "dashboard", from: "4.0.0-rev1-build1.3", to: "4.0.0-rev1-build1.1", digest: "sha256:cccc" }]],
    ["a hold keeps a pod out of Apply all", model.applicable(status({ images: [image(offer)], podManifests: [pod({ holds: [{ name: "disk", reason: "" }] })] })).length, 0],
    ["a closed window does not", model.applicable(status({ images: [image(offer)], podManifests: [pod({ holds: [{ name: "window", reason: "", onlyAuto: true }] })] })).length, 1],
    ["images stand with their pod, those of the configuration last",
        model.pods(status({ images: [image({ podManifest: "" }), image()] })).map(p => [p.podManifest, p.images.length]), [["velum.yaml", 1], ["", 1]]],

    ["a person's hold on everything", model.isEverythingHeld(status({ standingHolds: [{ repository: "*", name: "hold", by: { kind: "person" } }] })), true],
    ["is not the configuration's", model.isEverythingHeld(status({ standingHolds: [{ repository: "*", name: "hold", by: { kind: "configuration" } }] })), false],
    ["nor is a freeze", model.isEverythingHeld(status({ standingHolds: [{ repository: "*", name: "freeze", by: { kind: "configuration" } }] })), false],
    ["a person is called by name, else by number", [{ user: "alice", uid: 1000 }, { uid: 1000 }, {}].map(who => model.actor({ kind: "person", ...who })), ["alice", "user 1000", "a person"]],
    ["checking and staging are work", ["", "checking", "staging", "applying"].map(activity => model.isBusy({ pulls: [], work: null, doing: [], status: { activity } })), [false, true, true, false]],
    ["a lock says who has it", ["free", "waiting", "held", "refused"].map(state => model.lockText({ state, kept: false })),
        ["not needed now", "this node waits for it", "this node has it", "another node had it: apply again"]],
    ["its error says what failed", ["waiting", "releasing"].map(state => model.lockError({ state })), ["The lock was not granted", "The lock was not released"]],
    ["a lock that stops the fleet says so", model.lockText({ state: "held", kept: true }).startsWith("kept"), true],
    ["a host that is away is one alert with its pods", model.outages(status({ sources: [
        { repository: "registry.suse.com/caasp/v4/velum", host: "m", failures: 2, cause: "refused", lastSuccess: "2026-11-20T10:00:00Z" },
        { repository: "b", host: "m", failures: 1, cause: "unasked", lastSuccess: "2026-11-20T09:00:00Z", retryAt: "2026-11-20T13:00:00Z" },
        { repository: "c", host: "n", failures: 0 },
    ] })).map(one => [one.host, one.last, one.retry, [...one.texts], [...one.files]]),
        [["m", "2026-11-20T09:00:00Z", "2026-11-20T13:00:00Z", ["The connection is refused."], ["velum.yaml"]]]],
    ["a host that was never reached is that of its repository", model.outages(status({ sources: [{ repository: "r.example/a", host: "", failures: 1 }] }))[0].host, "r.example"],
    ["what failed stands first, then updates, then the rest", model.pods(status({
        podManifests: ["a", "b", "c"].map(name => pod({ podManifest: name, error: name === "b" ? "e" : "" })),
        images: [image({ podManifest: "a" }), image({ podManifest: "b" }), image({ podManifest: "c", ...offer })],
    })).map(p => p.podManifest), ["b", "c", "a"]],
    ["a held pod of the plan waits for its hold", [[], [{ name: "window", onlyAuto: true }], [{ name: "quorum" }]].map(holds => model.standing({ ready: true, holds })), ["waits for approval", "waits for approval", "held"]],
    ["an apply that another tab was faster with has nothing left", first({}).can.apply, false],
    ["the worst outcome stands first", model.worstFirst(["applied", "held", "failed"].map(result => ({ result }))).map(o => o.result), ["failed", "held", "applied"]],
    ["a check that failed stands first", model.gravestFirst(["skipped", "advice", "failed", "warning"].map(verdict => ({ verdict }))).map(f => f.verdict), ["failed", "warning", "advice", "skipped"]],
    ["pods are found by container, and by their updates", [["dash", false], ["x", false], ["", true]].map(([search, onlyUpdates]) =>
        model.found(model.pods(status()), { search, onlyUpdates }).length), [1, 0, 0]],
    ["a restart is a story of three steps, and of four with a lock", [false, true].map(hasLock => { const at = model.story({ phase: "waiting" }, hasLock); return [at.step, at.steps]; }), [[2, 3], [3, 4]]],
    ["a poll is none", model.story({ phase: "asking" }, false), null],
    ["a registry that has the local registry is not offered it", model.registriesOf(status({ localRegistry: { registries: [{ registry: "registry.suse.com" }] } })), []],
    ["another is", model.registriesOf(status()), ["registry.suse.com"]],
    ["a tag that two lists refuse stands once", model.refused(image({ refused: [{ tag: "5", rule: "updates" }], notAllowed: [{ tag: "5", rule: "updates", key: "updates: major" }] })), [{ tag: "5", rule: "updates", key: "updates: major" }]],
    ["a release without a tag is its digest", model.name({ tag: "", digest: "sha256:0123456789abcdef" }), "0123456789ab"],
    ["nothing is a dash", model.name(null), "–"],
    ["the control plane is known by its files", ["etcd.yaml", "kube-apiserver.yaml", "velum.yaml"].map(model.isControlPlane), [true, true, false]],
    ["what ends a hold is the daemon's text", ["", "look there; else here", "wait; or delete it: rm a: b"]
        .map(text => model.remedy({ name: "new", remedy: text })), ["", "look there; else here", "wait; or delete it: rm a: b"]],
    ["a person's hold ends by the page's button", model.remedy({ name: "hold", by: "person", remedy: "resume" }) !== "resume", true],
    ["an older daemon does not say it", model.remedy({ name: "disk" }), ""],

    ["a check that finds a registry away is no success", model.outcome("check", ["stale", "r"], "done"), { kind: "warning", title: "A registry does not answer", text: "", outcomes: [] }],
    ["nor is one of a node that failed", model.outcome("check", ["failed", "r"], "done"), { kind: "warning", title: "Something failed", text: "r", outcomes: [] }],
    ["one that finds updates is", model.outcome("check", ["staged", "r"], "done"), { kind: "ok", title: "done", text: "", outcomes: [] }],
    ["a refusal says what to do", model.problem({ name: "org.freedesktop.DBus.Error.AccessDenied", message: "m" }).title, "Not allowed"],
    ["so does a password that nobody can ask for", model.problem({ name: "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired" }).title, "Not allowed"],
    ["a hold is no failure", model.problem({ name: "org.opensuse.ImageUpdateAgent1.Error.Held", message: "m" }), { kind: "warning", title: "Updates are held", text: "m", outcomes: [] }],
    ["an offer that has changed is no failure", model.problem({ name: "org.opensuse.ImageUpdateAgent1.Error.OfferMoved", message: "m" }), { kind: "warning", title: "The offer has changed, and nothing was applied", text: "m", outcomes: [], moved: true }],
    ["nothing to do is none", model.problem({ name: "org.opensuse.ImageUpdateAgent1.Error.NothingToDo" }).kind, "info"],
    ["a daemon that ended in a call is named", model.problem({ name: "org.freedesktop.DBus.Error.NoReply" }).title, "The daemon ended before it answered"],
    ["so is one whose connection was closed", model.problem({ problem: "disconnected" }).title, "The daemon ended before it answered"],
    ["every other error is a failure, with its text", model.problem({ name: "x.Failed", message: "m" }), { kind: "danger", title: "It failed", text: "m", outcomes: [] }],
    ["what was done in part is counted, and each pod says its own", (() => {
        const outcomes = [{ podManifest: "a", result: "applied" }, { podManifest: "b", result: "failed", reason: "r" }];
        const result = model.problem({ name: "x.Failed", message: "a: applied; b: failed: r", outcomes });
        return [result.title, result.text, model.sentence(result)];
    })(), ["1 applied, 1 failed: b", "", "1 applied, 1 failed: b. a: applied. b: failed: r"]],
    ["what has ended while the status was on its way stays so", ["done", "failed", "interrupted"]
        .map(phase => shown([{ reference: "a", phase }, { reference: "velum", phase, ended: "verifying" }], older)), [[["b"], null], [["b"], null], [["b"], null]]],
    ["but not what has begun again", shown([{ reference: "a", phase: "failed" }, { reference: "a", phase: "resolving" }], older), [["a", "b"], "velum"]],
    ["a screen reader hears the reason, too", model.sentence(model.problem({ name: "x.Failed", message: "m" })), "It failed. m"],
];

export function failures() {
    return cases().filter(([, got, want]) => JSON.stringify(got) !== JSON.stringify(want))
        .map(([what, got, want]) => `${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

export const count = () => cases().length;
