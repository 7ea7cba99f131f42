// SPDX-License-Identifier: Apache-2.0
// Texts, times and sizes in the language of the session. po.js has the translations.
// @ts-check

const cockpit = window.cockpit;

export const _ = cockpit.gettext;
export const ngettext = cockpit.ngettext;
export const format = cockpit.format;

export const language = () => (cockpit.language || "en").replace("_", "-");

// A formatter takes longer to make than to use, and a page has hundreds of times.
const formatters = new Map();
function formatter(kind, options) {
    const key = [kind.name, language(), JSON.stringify(options)].join(" ");
    if (!formatters.has(key))
        formatters.set(key, new kind(language(), options));
    return formatters.get(key);
}

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const units = [["day", 86400], ["hour", 3600], ["minute", 60]];

/**
 * "3 hours ago", "in 9 hours", "now".
 * @param {Date} then
 * @param {Date} now
 */
export function relative(then, now) {
    const seconds = (then.getTime() - now.getTime()) / 1000;
    const text = formatter(Intl.RelativeTimeFormat, { numeric: "auto" });
    for (const [unit, size] of units)
        if (Math.abs(seconds) >= size)
            return text.format(Math.trunc(seconds / size), unit);
    return text.format(0, "second");
}

/**
 * A date and a time of day: without the date where it is of today, and with the time zone where a person has to know it.
 * @param {Date} then
 * @param {{now?: Date, zone?: boolean}} options
 */
export function clock(then, { now, zone } = {}) {
    const isToday = now?.toDateString() === then.toDateString();
    /** @type {Intl.DateTimeFormatOptions} */
    const date = isToday ? {} : { year: "numeric", month: "short", day: "numeric" };
    return formatter(Intl.DateTimeFormat, { ...date, hour: "numeric", minute: "2-digit", timeZoneName: zone ? "short" : undefined }).format(then);
}

/** The time zone of the browser, as in "Europe/Berlin". */
export const zoneName = () => new Intl.DateTimeFormat().resolvedOptions().timeZone;

/**
 * "1 min 20 sec".
 * @param {number} ms
 */
export function duration(ms) {
    const seconds = Math.max(0, Math.round(ms / 1000));
    const part = (n, unit) => formatter(Intl.NumberFormat, { style: "unit", unit, unitDisplay: "short" }).format(n);
    return [seconds >= 60 && part(Math.floor(seconds / 60), "minute"), (seconds % 60 || seconds === 0) && part(seconds % 60, "second")].filter(Boolean).join(" ");
}

/** @param {number} n */
export const bytes = n => cockpit.format_bytes(n);
