// SPDX-License-Identifier: Apache-2.0
// The daemon as the page sees it: signals on the bus say that the status has changed, the status socket has the status,
// methods on the bus act. The page asks for nothing that no signal announced, and a hidden page asks for nothing at all.
// @ts-check

const cockpit = window.cockpit;

const busName = "org.opensuse.ImageUpdateAgent1";
const busPath = "/org/opensuse/ImageUpdateAgent1";
const socket = "/run/image-update-agent/status.sock";
// The daemon's last status; the second one outlives a boot.
const lastFiles = ["/run/image-update-agent/status.json", "/var/lib/image-update-agent/status.json"];

const isPull = phase => ["resolving", "downloading", "unpacking"].includes(phase);
const isWork = phase => ["asking", "confirming", "changing", "returning", "locking", "waiting", "verifying"].includes(phase);

const debounce = 150; // ms between the first of some signals and one reading of the status
const busRetry = 2000; // ms
const pingTimeout = 5000; // ms

// A dictionary of the bus, without its types.
const values = record => Object.fromEntries(Object.entries(record).map(([key, value]) => [key, value.v]));

// A report of progress as the status has it: times are texts, and what is zero is absent.
function progressOf(record) {
    const progress = values(record);
    for (const key of ["since", "deadline", "healthyAt"])
        progress[key] = progress[key] ? new Date(progress[key] / 1000).toISOString() : undefined;
    return progress;
}

export class Daemon {
    /**
     * report gets the parts of the page's state that have changed.
     * @param {(change: object) => void} report
     */
    constructor(report) {
        this.report = report;
        this.pulls = new Map();
        this.ended = new Set(); // since the last question for the status: its answer may be older
        this.client = null;
        this.bus = null; // the bus itself
        this.reading = false;
        this.timer = 0;
        this.isOld = false; // the status: a signal came while the page was hidden
        this.watch = null; // of the status file
        this.heard = null; // the channel of progress
        this.outcomes = new Set(); // of the restarts that were asked for, by pod manifest
        this.watchName();
        cockpit.addEventListener("visibilitychange", () => this.seenOrHidden());
        this.seenOrHidden();
    }

    // A client of a name without an owner is closed at once, so the bus itself is asked who owns it.
    watchName() {
        const bus = this.bus = cockpit.dbus("org.freedesktop.DBus", { bus: "system" });
        const signal = { path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged", arg0: busName };
        bus.subscribe(signal, (_path, _interface, _member, [, , owner]) => owner ? this.connect() : this.lost());
        bus.addEventListener("close", () => this.busLost(bus));
        this.connect();
    }

    // Cockpit's bridge in Python does not notice the end of the bus, and cannot connect to the next one. The bus is asked
    // when a person comes back or acts, and when the daemon has written its status, which does not need the bus.
    async ping() {
        const bus = this.bus;
        if (!bus)
            return;
        try {
            await bus.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId", [], { timeout: pingTimeout });
        } catch {
            this.busLost(bus);
        }
    }

    busLost(bus) {
        if (this.bus !== bus)
            return;
        this.bus = null;
        bus.close();
        this.client?.close();
        this.lost();
        this.report({ noBus: true });
        setTimeout(() => this.watchName(), busRetry);
    }

    connect() {
        this.client?.close();
        const client = this.client = cockpit.dbus(busName, { bus: "system", superuser: "try" });
        client.addEventListener("close", () => {
            if (this.client === client)
                this.lost();
        });
        client.subscribe({ path: busPath, interface: busName, member: "Changed" }, (_path, _interface, _member, [state, reason]) => this.changed(state, reason));
        client.subscribe({ path: busPath, interface: busName, member: "Ended" }, (_path, _interface, _member, [record]) => {
            const outcome = values(record);
            this.outcomes.forEach(of => of.set(outcome.podManifest, outcome));
        });
        client.wait().then(async () => {
            if (this.client !== client)
                return;
            this.report({ noBus: false });
            this.listen();
            // The bus answers in order: once it has passed this question on, it has the subscriptions, too, so that whatever
            // changes after the reading is announced.
            await this.allowed();
            if (this.client === client)
                this.read(); // also while it is hidden: the menu has a mark
        }, () => this.client === client && this.lost());
    }

    // Nothing asks the socket then: systemd would start a daemon that an admin has stopped.
    lost() {
        this.client = null;
        this.listen();
        this.pulls.clear();
        clearTimeout(this.timer);
        this.timer = 0;
        this.report({ up: false, pulls: [], work: null, allowed: null });
        this.readLast(lastFiles);
    }

    async readLast(files) {
        let status = null;
        for (const file of files)
            status ??= await cockpit.file(file, { syntax: JSON, max_read_size: 16 << 20 }).read().catch(() => null);
        if (!this.client)
            this.report(status ? { status, read: true } : { read: true });
    }

    // What the caller may do; null: the daemon does not say, or is an older one.
    async allowed() {
        try {
            const [allowed] = await this.client.call(busPath, busName, "Allowed", [], { type: "", timeout: pingTimeout });
            this.report({ allowed });
        } catch {
            this.report({ allowed: null });
        }
    }

    seenOrHidden() {
        this.listen();
        if (cockpit.hidden) {
            this.watch?.remove();
            this.watch = null;
            return;
        }
        this.watch ??= cockpit.file(lastFiles[0]).watch(() => this.client && this.ping(), { read: false });
        if (this.isOld)
            this.refresh();
    }

    // listen hears progress while somebody sees it: on a channel of its own, since the bridge in Python does not forget
    // what a channel has once subscribed to.
    listen() {
        const isHeard = this.client && !cockpit.hidden;
        if (Boolean(this.heard) === Boolean(isHeard))
            return;
        this.heard?.close();
        this.heard = isHeard ? cockpit.dbus(busName, { bus: "system" }) : null;
        this.heard?.subscribe({ path: busPath, interface: busName, member: "ProgressDetails" },
            (_path, _interface, _member, [record]) => this.progress(progressOf(record)));
    }

    changed(state, reason) {
        if (!cockpit.hidden)
            return this.refresh();
        this.isOld = true;
        this.report({ heard: { state, reason } });
    }

    progress(now) {
        const work = isWork(now.phase) ? now : null;
        this.pulls.delete(now.reference);
        this.ended.delete(now.reference);
        if (isPull(now.phase))
            this.pulls.set(now.reference, now);
        else if (!work)
            this.ended.add(now.reference);
        this.report({ pulls: [...this.pulls.values()], ...(isPull(now.phase) ? {} : { work }) });
    }

    seen(status) {
        if (!this.client)
            return;
        const goesOn = one => !this.ended.has(one.reference);
        const work = status.progress && isWork(status.progress.phase) && goesOn(status.progress) ? status.progress : null;
        this.pulls = new Map((status.pulls ?? []).filter(goesOn).map(pull => [pull.reference, { done: 0, total: 0, ...pull }]));
        this.isOld = false;
        this.report({ status, heard: null, read: true, up: true, error: "", pulls: [...this.pulls.values()], work });
    }

    // refresh reads the status once, soon.
    refresh() {
        this.isOld = true;
        if (this.timer)
            return;
        this.timer = setTimeout(() => {
            this.timer = 0;
            this.read();
        }, debounce);
    }

    async read() {
        if (!this.client)
            return;
        if (this.reading)
            return this.refresh();
        this.reading = true;
        this.ended.clear();
        try {
            this.seen(JSON.parse(await cockpit.http(socket).get("/v1/status")));
        } catch (error) {
            if (this.client)
                this.report({ read: true, error: cockpit.message(error) });
        } finally {
            this.reading = false;
        }
    }

    /**
     * @param {string} method
     * @param {string} type
     * @param {unknown[]} args
     */
    call(method, type, args) {
        if (!this.client)
            return Promise.reject({ problem: "not-found", message: "" });
        this.ping();
        return this.client.call(busPath, busName, method, args, { type }); // without a timeout: an apply takes minutes
    }

    // An error on the bus has no fields: the outcome of each pod manifest comes as a signal before the answer.
    async restart(names, ...call) {
        const outcomes = new Map(), ours = () => [...outcomes.values()].filter(one => names.includes(one.podManifest) && one.result !== "nothing");
        this.outcomes.add(outcomes);
        try {
            await this.call(...call);
            return ours();
        } catch (error) {
            error.outcomes = ours();
            throw error;
        } finally {
            this.outcomes.delete(outcomes);
        }
    }

    check() { return this.call("Check", "", []); }
    /** @param {{image: string, digest: string}[]} expect what the person was shown */
    apply(names, retry, expect) {
        return this.restart(names, "Apply", "asbba(ss)", [names, false, retry, expect.map(e => [e.image, e.digest])]);
    }
    rollback(names) { return this.restart(names, "Rollback", "asb", [names, false]); }
    resume(names, all = false) { return this.call("Resume", "asb", [names, all]); }
    releaseLock() { return this.call("ReleaseLock", "", []); }
    forgetCatalog() { return this.call("ForgetCatalog", "", []); }
    enableLocalRegistry(registry, gate) { return this.call("EnableLocalRegistry", "sb", [registry, gate]); }
    disableLocalRegistry(registry) { return this.call("DisableLocalRegistry", "s", [registry]); }

    /** @param {Date | null} until null: until Resume */
    hold(names, all, until, reason) {
        return this.call("Hold", "asbts", [names, all, until ? until.getTime() * 1000 : 0, reason]);
    }
}

/** Runs a verb of the program that prints JSON. Its exit code counts only where it prints none. */
export async function verb(...args) {
    let text = "";
    try {
        await cockpit.spawn(["image-update-agent", ...args, "--output", "json"], { superuser: "try", err: "message" })
            .stream(data => { text += data; });
    } catch (error) {
        if (text === "")
            throw error;
    }
    return JSON.parse(text);
}
