// SPDX-License-Identifier: Apache-2.0
// The daemon as the page sees it: the bus says when something has changed, the status socket says what, methods on the
// bus act.
// @ts-check

const cockpit = window.cockpit;

const busName = "org.opensuse.ImageUpdateAgent1";
const busPath = "/org/opensuse/ImageUpdateAgent1";
const socket = "/run/image-update-agent/status.sock";
// The daemon's last status; the second one outlives a boot.
const lastFiles = ["/run/image-update-agent/status.json", "/var/lib/image-update-agent/status.json"];

const isPull = phase => ["resolving", "downloading", "unpacking"].includes(phase);
const isWork = phase => ["asking", "confirming", "changing", "returning", "locking", "waiting", "proving"].includes(phase);

const debounce = 150; // ms between the first of some signals and one reading of the status
const workInterval = 2000; // ms between readings while something runs
const busRetry = 2000; // ms
const pingTimeout = 5000; // ms

export class Daemon {
    /**
     * report gets the parts of the page's state that have changed.
     * @param {(change: object) => void} report
     */
    constructor(report) {
        this.report = report;
        this.pulls = new Map();
        this.client = null;
        this.bus = null; // the bus itself
        this.reading = false;
        this.timer = 0;
        this.due = 0; // of the timer
        this.watchName();
    }

    // A client of a name without an owner is closed at once, so the bus itself is asked who owns it.
    watchName() {
        const bus = this.bus = cockpit.dbus("org.freedesktop.DBus", { bus: "system" });
        const signal = { path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged", arg0: busName };
        bus.subscribe(signal, (_path, _interface, _member, [, , owner]) => owner ? this.connect() : this.lost());
        bus.addEventListener("close", () => this.busLost(bus));
        this.connect();
    }

    // Cockpit's bridge in Python does not notice the end of the bus, and cannot connect to the next one.
    async ping() {
        const bus = this.bus;
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
        client.subscribe({ path: busPath, interface: busName, member: "Progress" }, (_path, _interface, _member, progress) => this.progress(progress));
        client.subscribe({ path: busPath, interface: busName, member: "Changed" }, () => this.refresh());
        client.subscribe({ path: busPath, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged" }, () => this.refresh());
        client.wait().then(() => {
            if (this.client !== client)
                return;
            this.report({ noBus: false });
            this.allowed();
            this.refresh();
        }, () => this.client === client && this.lost());
    }

    // Nothing asks the socket then: systemd would start a daemon that an admin has stopped.
    lost() {
        this.client = null;
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
            const [allowed] = await this.call("Allowed", "", []);
            this.report({ allowed });
        } catch {
            this.report({ allowed: null });
        }
    }

    progress([reference, phase, done, total]) {
        const now = { reference, phase, done, total };
        if (isPull(phase))
            this.pulls.set(reference, now);
        else
            this.pulls.delete(reference);
        this.report({ pulls: [...this.pulls.values()] });
        this.refresh();
    }

    seen(status) {
        if (!this.client)
            return;
        const work = status.progress && isWork(status.progress.phase) ? status.progress : null;
        this.pulls = new Map((status.pulls ?? []).map(pull => [pull.reference, { done: 0, total: 0, ...pull }]));
        this.report({ status, read: true, up: true, error: "", pulls: [...this.pulls.values()], work });
        if (work || this.pulls.size > 0 || status.state === "applying")
            this.refresh(workInterval);
    }

    // look notices what no signal told.
    look() {
        if (this.bus)
            this.ping();
        this.refresh();
    }

    // refresh reads the status once, within delay.
    refresh(delay = debounce) {
        const due = Date.now() + delay;
        if (this.timer && this.due <= due)
            return;
        clearTimeout(this.timer);
        this.due = due;
        this.timer = setTimeout(() => {
            this.timer = 0;
            this.read();
        }, delay);
    }

    async read() {
        if (this.reading || !this.client)
            return this.client && this.refresh(workInterval);
        this.reading = true;
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
        return this.client.call(busPath, busName, method, args, { type }); // without a timeout: an apply takes minutes
    }

    check() { return this.call("Check", "", []); }
    /** @param {{image: string, digest: string}[]} expect what the person was shown */
    apply(names, retry, expect) {
        return this.call("Apply", "asbba(ss)", [names, false, retry, expect.map(e => [e.image, e.digest])]);
    }
    rollback(names) { return this.call("Rollback", "asb", [names, false]); }
    unhold(names, all = false) { return this.call("Unhold", "asb", [names, all]); }

    /** @param {Date | null} until null: until Unhold */
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
