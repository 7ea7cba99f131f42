// SPDX-License-Identifier: Apache-2.0
// What the page shows of a status: pure, without a document and without a clock.
// @ts-check

import { _, clock, ngettext, format } from "./i18n.js";

/** How old a check may be, in milliseconds, so that the page still calls the node current while polling is off. */
const freshCheck = 24 * 3600 * 1000;

/** How many bytes of the reason of a hold the daemon takes. */
export const maxReason = 200;

/** With more pods than these, the page has a search, and folds the pods that have no news. */
export const manyPods = 10;

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
        return { title: _("A withdrawn or denied release is running"), icon: "danger" };
    if (s.state === "unchecked" && s.nextCheck)
        return { title: format(_("Not checked yet: the first check is at $0"), clock(new Date(s.nextCheck), page)), icon: "info" };
    if (s.state === "failed") {
        const all = reasons(s), [{ text } = { text: "" }] = all;
        return text ? { ...state, title: text.replace(/\.$/, "") + (all.length > 1 ? " " + format(_("(and $0 more)"), all.length - 1) : ""), reason: text } : state;
    }
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

// The kinds of reasons that another part of the page shows: pods, registries, progress or the headline.
const shownElsewhere = ["approval", "hold", "source", "not-asked", "not-allowed", "looks-newer", "rebuilds-only", "none", "applying"];

/**
 * The reasons of the state, as {text, cause, file}: cause is the daemon's own text where it says more; file is the pod
 * manifest on this page.
 */
export const reasons = s => (s.reasons ?? []).filter(r => !shownElsewhere.includes(r.kind)).map(r => {
    const of = r.podManifest || lastPart(r.image ?? "");
    const texts = {
        starting: () => [_("The daemon has not observed the node yet.")],
        withdrawn: () => [format(_("$0: $1 runs, was withdrawn, and nothing is offered instead."), of, r.tag)],
        denied: () => [format(_("$0: $1 runs, although it is denied on this node."), of, r.tag), r.text],
        down: () => [format(_("$0: $1 does not run."), of, r.container)],
        "rolled-back": () => [format(_("$0 was rolled back."), of)], // the pod says why
        "not-up": () => [format(_("$0 did not come up and was not rolled back."), of), r.text],
        "not-checked": () => [format(_("$0 runs, but nobody can tell whether it works."), of), r.text],
        "tag-gone": () => [format(_("$0: the registry no longer has the tag $1."), of, r.tag), r.text],
        "tag-not-found": () => [format(_("$0: the registry does not have $1:$2."), of, r.image, r.tag), r.text],
        lock: () => [format(_("The fleet lock is kept, because $0 did not come up."), of)],
        unlock: () => [_("The fleet lock cannot be released."), r.text],
        catalog: () => [format(_("The release catalog $0 cannot be used."), r.image), r.text],
        "local-registry": () => [format(_("containerd no longer asks the local registry for $0."), r.host), r.text],
        "no-tag-list": () => [format(_("$0 serves no list of tags, so higher tags are not seen."), r.host)],
        await: () => [format(_("$0: the release $1 exists but cannot be offered yet."), of, r.tag), r.text],
    };
    const [text, cause = ""] = texts[r.kind]?.() ?? [r.text];
    return { text, cause: cause === text ? "" : cause, file: (s.podManifests ?? []).some(pod => pod.podManifest === r.podManifest) ? r.podManifest : "" };
});

/** The next thing that a person can do; empty: nothing. */
export function advice(s, { up }) {
    const has = kind => (s.reasons ?? []).some(r => r.kind === kind);
    if (!up)
        return _("Start the service.");
    switch (s.state) {
    case "applying":
        return has("down") ? _("Wait: kubelet starts the new release, which may need a download.") : _("Wait: it ends with a health check or with a rollback.");
    case "failed":
        return failedAdvice(s, has);
    case "held": {
        const remedies = [...new Set(pods(s).flatMap(pod => pod.held).map(remedy))];
        return remedies.length === 1 ? remedies[0] : _("See what ends each hold, below.");
    }
    case "stale":
        return has("catalog") ? _("The publisher has to refresh the release catalog.") : _("Restore the connection to the registry. “Plan and checks” shows what is wrong.");
    case "staged":
        return _("Apply the updates when the pods may restart for some seconds.");
    case "unchecked":
        return s.nextCheck ? "" : _("Check now: polling is off.");
    default:
        return "";
    }
}

function failedAdvice(s, has) {
    const failed = (s.reasons ?? []).filter(r => r.kind !== "approval" && !["withdrawn", "denied"].includes(r.kind));
    if (has("not-up"))
        return _("The pod may be down: see crictl ps -a and crictl logs. Try again when the cause is gone.");
    if (has("lock"))
        return _("Find out why the pod did not come up. The agent releases the lock when the pod is healthy. If the other nodes may go on, release the lock.");
    if (has("unlock"))
        return _("The agent tries again by itself. If a lock server has the lock, see its log.");
    if (has("catalog"))
        return _("Find out what the registry serves. The verified version stays in force. If you want the older catalog, forget the verified version.");
    if (has("local-registry"))
        return _("“Plan and checks” says how containerd asks the local registry again.");
    if (has("tag-not-found"))
        return _("Correct the name of the image or its tag in the pod manifest, or follow in the configuration.");
    if (failed.length > 0 && failed.every(r => r.kind === "rolled-back"))
        return _("There is no hurry: the previous release runs. If the node was the cause, try again; if the image was, wait for a newer release.");
    if (failed.length === 0 && has("withdrawn"))
        return _("Publish a release to run instead, or allow a lower one with catalog.allowLower.");
    if (failed.length === 0 && has("denied"))
        return _("Roll the pod back, or try the release again to allow it.");
    return _("See “Plan and checks”, then the journal.");
}

/** When mode auto applies updates; empty: a person approves them. */
export function autoText(auto, now) {
    if (!auto)
        return "";
    const at = auto.changesAt && clock(new Date(auto.changesAt), { now, zone: true });
    if (auto.open)
        return at ? format(_("Updates are applied automatically until $0, when the maintenance window closes"), at) : _("Updates are applied automatically as soon as they are ready");
    return at ? format(_("Updates are applied automatically from $0, when the next maintenance window opens"), at) : _("No maintenance window opens any more");
}

/** The mark beside the page's name in Cockpit's menu: {type, title}; null: not known yet. */
export function mark({ read, up, status, heard }) {
    if (!read)
        return null;
    if (!up)
        return { type: "error", title: _("The image update agent does not run") };
    const s = { ...status, ...heard }; // a hidden page hears the state, and reads no status
    if (s.state === "failed" || mustNotRun(s).length > 0)
        return { type: "error", title: s.reason };
    const waiting = s.updates?.length > 0 &&
        format(ngettext("$0 update waits for approval", "$0 updates wait for approval", s.updates.length), s.updates.length);
    if (s.state === "stale")
        return { type: "warning", title: [states().stale.title, waiting].filter(Boolean).join("; ") };
    if (waiting || s.state === "staged")
        return { type: "info", title: waiting || states().staged.title };
    return { type: null, title: states()[s.state]?.title ?? "" };
}

/** Whether something runs that is not an apply: a check or a pull. */
export const isBusy = page => page.pulls.length > 0 || page.work !== null || isDoing(page, "check") ||
    ["checking", "staging"].includes(page.status?.activity);

/** Whether the page waits for the answer to what a person has asked for; of a pod manifest, or of any. */
export const isDoing = (page, what, file) => page.doing.some(one => one.what === what && (file === undefined || one.files.includes(file)));

/** What a release is called. */
export const name = n => !n ? "–" : n.tag || short(n.digest);

/** What a release changes. */
export const changeName = change => ({
    major: _("major"), minor: _("minor"), patch: _("patch"), revision: _("revision"), rebuild: _("rebuild"),
    convert: _("convert"), remove: _("remove"),
})[change] ?? change;

/** How much a release matters, as its publisher says it. */
export const severityName = severity => ({
    low: _("low"), moderate: _("moderate"), important: _("important"), critical: _("critical"),
})[severity] ?? severity;

/** What a person's request has interrupted. */
export const interrupted = work => ({
    poll: _("a check"), staging: _("a download"), "health check": _("a health check"), cycle: _("a cycle"),
})[work] ?? work;

/** The first digits of a digest. */
export const short = digest => digest.replace(/^sha256:/, "").slice(0, 12);

/** The last part of a repository. */
export const lastPart = repository => repository.slice(repository.lastIndexOf("/") + 1);

const isPersons = hold => hold.by === "person";

/** How an update of a pod stands in a plan: a hold is before an approval. */
export function standing(pod) {
    if (pod.holds.some(hold => !hold.onlyAuto))
        return _("held");
    return pod.ready ? _("waits for approval") : _("not ready yet");
}

/** Why a hold delays updates, as {text, cause}: cause is the daemon's own text where it says more. */
export const holdReason = hold => ({ text: translated(hold.summary || hold.reason), cause: hold.summary ? hold.details : "" });

// A text of the daemon with a field's value behind ": ", in the language of the session.
function translated(text) {
    const [lead, ...rest] = text.split(": ");
    return _(text) !== text || rest.length === 0 ? _(text) : [_(lead), ...rest].join(": ");
}

/** Why a tag is not offered, in the same form. */
export function ruleReason({ rule, reason, byHand }) {
    const texts = {
        updates: _("The change is larger than allowed."), allow: _("No pattern allows the tag."), deny: _("A pattern denies it."), max: _("It is above the highest tag allowed."),
        kubeadm: _("kubeadm upgrades this control plane."), missing: _("The registry lists the tag but does not have it."), platform: _("The image is not for this node."),
        origin: _("The image belongs to another application."), older: _("The tag moved to an older build."), signature: _("No signature is valid."),
        publishing: _("It is still being published."), unlisted: _("The release catalog does not list the image."), withdrawn: _("The release catalog has withdrawn it."),
        critical: _("The release catalog says something that this agent does not know."),
        confirmAfter: _("The second reading named another release."), failed: byHand ? _("A person rolled it back.") : _("It failed on this node."),
    };
    return texts[rule] ? { text: texts[rule], cause: reason } : { text: reason, cause: "" };
}

/** What went wrong, in the same form. */
export function failure({ kind, text }) {
    const texts = {
        unsigned: _("The release is not signed yet."), forged: _("No signature is valid."), disk: _("The disk is too full."),
        "not-found": _("The registry does not have it."), platform: _("The image is not for this node."),
        unlisted: _("The release catalog does not list the image."), catalog: _("The release catalog cannot be used."),
        source: _("The registry does not answer."), "not-up": _("The pod did not come up."),
        "not-checked": _("The pod runs, but nobody can tell whether it works."),
        conflict: _("The pod manifest was changed meanwhile."),
    };
    return texts[kind] ? { text: texts[kind], cause: text } : { text, cause: "" };
}

/** The verdict of a check of doctor. */
export const verdict = is => ({ ok: _("ok"), advice: _("advice"), warning: _("warning"), failed: _("failed"), skipped: _("skipped") })[is] ?? is;

const gravity = ["failed", "warning", "advice", "skipped"];

/** What doctor finds, the gravest first. */
export const gravestFirst = findings => [...findings].sort((a, b) => gravity.indexOf(a.verdict) - gravity.indexOf(b.verdict));

/** A step of the plan. */
export function stepText(step) {
    const of = text => format(text, step.podManifest);
    const texts = {
        stage: () => format(_("Download $0:$1"), step.image, step.tag), write: () => of(_("Write $0; no pod restarts")), keep: () => of(_("Render $0, to be approved")),
        drop: () => of(_("Delete the rendered $0")), remove: () => of(_("Delete $0, whose pod does not run")),
        pin: () => format(ngettext("Protect $0 image from garbage collection", "Protect $0 images from garbage collection", step.count), step.count),
        prune: () => format(ngettext("Remove $0 old image", "Remove $0 old images", step.count), step.count),
        verify: () => of(_("Check the health of $0")), "roll back": () => of(_("Roll $0 back")), apply: () => of(_("Apply the update of $0")),
    };
    return texts[step.do]?.() ?? step.text;
}

/** What ends a hold, as the daemon says it: each part in the language of the session, whole or up to its ": ". */
export function remedy(hold) {
    if (isPersons(hold))
        return _("Resume ends it."); // which the page has a button for
    return (hold.remedy ?? "").split("; ").map(translated).join("; ");
}

/**
 * The pod manifests with their images: those that failed first, then those with an update, then those with other trouble,
 * else in the order of the status; last the images that only the configuration names. can says which actions make sense; moves, returns and
 * retries are what Apply, Roll back and Try again change.
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
            beside.set(file, { podManifest: file, holds: image.holds ?? [], untouched: [], edits: [], error: "", change: "", images: [] });
        (byFile.get(file) ?? beside.get(file)).images.push(image);
    }
    const standing = standingHolds(s);
    return [...byFile.values(), ...beside.values()].map(pod => withActions(s, pod, standing)).sort((a, b) => a.rank - b.rank);
}

const move = (image, to, more) => ({
    container: image.container || image.image, from: name(image.running), to: name(to), digest: to.digest, ...more,
});

function withActions(s, pod, standing) {
    const offered = pod.images.filter(i => i.offered && i.staged);
    const moves = offered.map(i => move(i, i.offered, { change: i.change, brings: i.brings }));
    const returns = pod.images.filter(previousOf).map(i => move(i, previousOf(i)));
    const tried = pod.rolledBack?.retries ?? [];
    const retries = pod.images.flatMap(i => tried.filter(t => t.image === i.image).map(t => move(i, t, { reason: t.reason })));
    const isFile = pod.podManifest !== "";
    const failed = s.reasons?.some(r => ["not-up", "rolled-back"].includes(r.kind) && r.podManifest === pod.podManifest);
    const held = (pod.holds ?? []).filter(hold => !hold.onlyAuto);
    const can = {
        apply: isFile && (offered.length > 0 || ["remove", "convert"].includes(pod.change)),
        retry: isFile && (failed || Boolean(pod.rolledBack)),
        rollback: isFile && (pod.canRollBack ?? pod.images.length > 0), // an older daemon does not say
        hold: isFile && pod.images.length > 0,
        resume: isFile && (pod.holds?.some(h => isPersons(h) && h.image !== "*") ||
            standing.some(h => isEnded(h) && pod.images.some(i => i.image === h.repository))),
    };
    const isTrouble = failed || pod.error || pod.rolledBack || held.length > 0 ||
        pod.images.some(i => i.down || i.denied || i.withdrawn || i.error && !["source", "not-asked"].includes(i.errorKind));
    const isFailed = failed || Boolean(pod.error) || pod.images.some(i => i.down && !i.down.starting || i.denied || i.withdrawn);
    const isOffered = can.apply || pod.images.some(i => i.offered);
    const rank = [isFailed, isOffered, isTrouble, isFile].findIndex(Boolean);
    return { ...pod, moves, returns, retries, held, holds: pod.holds ?? [], can, isOffered, isTrouble, rank: rank < 0 ? 4 : rank };
}

/** The pods that a person wants to see: by a part of a name, and only those with updates. */
export function found(all, { search, onlyUpdates }) {
    const text = search.trim().toLowerCase();
    return all.filter(pod => (!onlyUpdates || pod.isOffered) &&
        [pod.podManifest, ...pod.images.flatMap(i => [i.image, i.container])].some(name => name.toLowerCase().includes(text)));
}

/**
 * A dialog with what it shows, as it was when it opened: a status that comes meanwhile changes neither the text that a
 * person reads nor what the person approves. expect are the digests that an apply is for.
 */
export function opened(s, dialog) {
    if (dialog.pods || !dialog.files)
        return dialog;
    const shown = pods(s).filter(pod => dialog.files.includes(pod.podManifest));
    return { ...dialog, pods: shown, expect: dialog.kind === "apply" ? shown.flatMap(pod => expected(pod, dialog.retry)) : [] };
}

const expected = (pod, retry) => retry && pod.retries.length > 0
    ? pod.rolledBack.retries.filter(t => pod.images.some(i => i.image === t.image)).map(t => ({ image: t.image, digest: t.digest }))
    : pod.images.filter(i => i.offered).map(i => ({ image: i.image, digest: i.offered.digest }));

/** Whether another update is offered now than an open dialog shows. A failed apply changes the offer itself, and its dialog says why. */
export function isMoved(s, dialog) {
    if (dialog.kind !== "apply" || dialog.doing || dialog.problem || s.state === "applying")
        return false;
    const { kind, retry, files } = dialog;
    return JSON.stringify(opened(s, { kind, retry, files }).expect) !== JSON.stringify(dialog.expect);
}

/** The rollback target of an image: what the daemon names, else what ran well before; null: none is known. */
function previousOf(image) {
    if (image.previous !== undefined)
        return image.previous;
    return image.lastKnownGood && image.running && image.lastKnownGood.digest !== image.running.digest ? image.lastKnownGood : null;
}

/** The holds of persons and of the configuration, also of pods that are current. */
export const standingHolds = s => s.standingHolds ?? [];

/** Whether Resume ends a standing hold. */
export const isEnded = hold => hold.by.kind === "person";

export const isEverythingHeld = s => standingHolds(s).some(hold => hold.repository === "*" && isEnded(hold));

/** What the node does with the fleet lock; empty: nothing. */
export function lockText(lock) {
    if (lock.kept)
        return _("kept, because a pod did not come up: no other node goes on");
    const texts = { waiting: _("this node waits for it"), held: _("this node has it"), releasing: _("this node releases it"), free: _("not needed now"), refused: _("another node had it: apply again") };
    return texts[lock.state] ?? lock.state;
}

/** What failed with the lock, for its error. */
export const lockError = lock => lock.state === "releasing" ? _("The lock was not released") : _("The lock was not granted");

/** Who did something: {kind, uid, user, via}. */
export function actor(by) {
    const kinds = {
        person: by.user || (by.uid === undefined ? _("a person") : format(_("user $0"), by.uid)),
        configuration: _("the configuration"), auto: _("mode auto"), agent: _("the agent"), kubelet: _("kubelet"),
    };
    return kinds[by.kind] ?? by.kind;
}

/** The pods that can be applied now. */
export const applicable = s => pods(s).filter(pod => pod.can.apply && pod.held.length === 0);

/** The host of a source, also of one that was never reached. */
const hostOf = source => source.host || source.repository.split("/")[0];

const causes = () => ({
    timeout: _("No answer in time."), dns: _("The name does not resolve."), refused: _("The connection is refused."),
    tls: _("The certificate is not valid."), auth: _("The login is refused."), "not found": _("The repository does not exist there."),
    "rate limited": _("There were too many requests."), "server error": _("The answer is a server error."),
    "no registry": _("The answer is a page for people, such as a login page."), unasked: _("Not asked again, because there was no answer before."),
});

/**
 * The hosts that do not answer, each once: {host, mirror, text, causes, failures, last, retry, repositories, files}. last is
 * the oldest answer; null: there was none.
 */
export function outages(s) {
    const all = new Map();
    for (const source of s.sources.filter(one => one.failures > 0)) {
        const host = hostOf(source);
        const one = all.get(host) ?? { host, mirror: source.mirror, failures: 0, last: source.lastSuccess, retry: null, texts: new Set(), details: new Set(), repositories: [], files: new Set() };
        all.set(host, one);
        one.failures = Math.max(one.failures, source.failures);
        one.last = source.lastSuccess && one.last && (source.lastSuccess < one.last ? source.lastSuccess : one.last);
        one.retry = [one.retry, source.retryAt].filter(Boolean).sort()[0] ?? null;
        if (source.cause !== "unasked" || one.texts.size === 0)
            one.texts.add(causes()[source.cause] ?? "");
        one.details.add([source.reason || source.error, source.httpStatus ? `HTTP ${source.httpStatus}` : ""].filter(Boolean).join(": "));
        one.repositories.push(source.repository);
        for (const image of s.images.filter(i => i.image === source.repository && i.podManifest))
            one.files.add(image.podManifest);
    }
    return [...all.values()];
}

/** The registries of the followed images that the node's local registry can be enabled for. */
export function registriesOf(s) {
    const has = new Set((s.localRegistry?.registries ?? []).map(r => r.registry));
    return [...new Set(s.images.map(i => i.image.split("/")[0]))].filter(name => name && !has.has(name)).sort();
}

/** Newer tags of an image that are not offered: {tag, rule, reason, key, since, retryAt, holds}. */
export function refused(image) {
    const byTag = new Map();
    for (const refusal of [...(image.refused ?? []), ...(image.notAllowed ?? [])])
        byTag.set(refusal.tag + " " + refusal.rule, { ...byTag.get(refusal.tag + " " + refusal.rule), ...refusal });
    return [...byTag.values()];
}

/** What the control plane's pods interrupt while they restart. */
export const isControlPlane = file => /^(etcd|kube-(apiserver|controller-manager|scheduler))\.ya?ml$/.test(file);

/** The steps of a restart, and where it is: {step, steps, text}; null: the phase is none of a restart. */
export function story(work, hasLock) {
    const texts = {
        changing: _("Writing the pod manifest"), returning: _("Returning to the previous release"), locking: _("Waiting for the fleet lock"),
        waiting: _("Waiting until its containers run"), verifying: _("Verifying that it stays healthy"),
    };
    const steps = [work.phase === "returning" ? "returning" : "changing", ...hasLock || work.phase === "locking" ? ["locking"] : [], "waiting", "verifying"];
    const at = steps.indexOf(work.phase);
    return at < 0 ? null : { step: at + 1, steps: steps.length, text: texts[work.phase] };
}

/** What became of a pod manifest, in words. */
export const results = () => ({
    applied: { text: _("applied"), color: "green" }, "rolled back": { text: _("rolled back"), color: "orange" },
    "picked up": { text: _("picked up"), color: "blue" }, failed: { text: _("failed"), color: "red" }, held: { text: _("held"), color: "orange" },
    canceled: { text: _("not begun"), color: "grey" }, continues: { text: _("goes on"), color: "blue" },
});

const order = ["failed", "rolled back", "held", "canceled", "continues", "picked up", "applied"];

/** The outcomes of several pods, the worst first. */
export const worstFirst = outcomes => [...outcomes].sort((a, b) => order.indexOf(a.result) - order.indexOf(b.result));

// "9 applied, 1 failed: etcd.yaml": how many pods had each result, with their names where an apply went wrong.
function counted(outcomes) {
    const kinds = [...new Set([...order].reverse().filter(result => outcomes.some(o => o.result === result)))];
    return kinds.map(result => {
        const files = outcomes.filter(o => o.result === result).map(o => o.podManifest);
        return files.length + " " + (results()[result]?.text ?? result) + (result === "applied" ? "" : ": " + files.slice(0, 3).join(", ") + (files.length > 3 ? " …" : ""));
    }).join(", ");
}

/**
 * What a method has answered: {kind, title, text, outcomes}. A check that found a registry away is no success.
 * @param {string} what
 * @param {any} answer
 * @param {string} done
 */
export function outcome(what, answer, done) {
    if (["apply", "rollback"].includes(what))
        return { kind: "ok", title: done, text: "", outcomes: answer.length > 1 ? answer : [] };
    if (what !== "check")
        return { kind: "ok", title: done, text: "", outcomes: [] };
    const [state, reason] = answer;
    if (["stale", "failed", "unchecked"].includes(state))
        return { kind: "warning", title: states()[state].title, text: state === "failed" ? reason : "", outcomes: [] };
    return { kind: "ok", title: done, text: "", outcomes: [] };
}

const ended = () => ({ title: _("The daemon ended before it answered"), text: _("It continues what it has begun when it runs again.") });

/**
 * An error of a method as {kind, title, text, outcomes}. Where there are outcomes, they say it all.
 * @param {{name?: string, message?: string, problem?: string, outcomes?: any[]}} error
 * @param {string} [what] was asked for
 */
export function problem(error, what) {
    const outcomes = error.outcomes ?? [], text = outcomes.length > 0 ? "" : error.message ?? "";
    const partly = outcomes.length > 1 ? counted(outcomes) : "";
    const of = (kind, title, more) => ({ kind, title, text, outcomes, ...more });
    switch ((error.name ?? "").split(".").pop()) {
    case "InteractiveAuthorizationRequired":
    case "AccessDenied":
        return of("warning", _("Not allowed"), { text: _("Turn on administrative access, or ask an admin for a polkit rule.") + " (" + text + ")" });
    case "Held":
        return of("warning", what === "registry" ? _("The file stays as it is") : partly || _("Updates are held"));
    case "OfferMoved":
        return of("warning", _("The offer has changed, and nothing was applied"), { moved: true });
    case "NothingToDo":
        return of("info", _("There is nothing to do"), { text: "" });
    case "LimitsExceeded":
        return of("warning", _("Too many requests at once"));
    case "NoReply":
    case "Disconnected":
        return of("danger", "", ended());
    }
    if (["disconnected", "terminated", "not-found"].includes(error.problem ?? ""))
        return of("danger", "", ended());
    return of("danger", partly || _("It failed"), outcomes.length > 0 ? {} : { text: text || error.problem || "" });
}

/** A result as a screen reader says it, with its reasons. */
export const sentence = ({ title, text, outcomes }) =>
    [title, text, ...outcomes.map(o => [o.podManifest, results()[o.result]?.text ?? o.result, o.reason].filter(Boolean).join(": "))].filter(Boolean).join(". ");
