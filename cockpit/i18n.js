// SPDX-License-Identifier: Apache-2.0
// Texts, times and sizes in the language of the session. po.js has the translations.
// @ts-check

const cockpit = window.cockpit;

export const _ = cockpit.gettext;
export const ngettext = cockpit.ngettext;
export const format = cockpit.format;

export const language = () => (cockpit.language || "en").replace("_", "-");

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const units = [["day", 86400], ["hour", 3600], ["minute", 60]];

/**
 * "3 hours ago", "in 9 hours", "now".
 * @param {Date} then
 * @param {Date} now
 */
export function relative(then, now) {
    const seconds = (then.getTime() - now.getTime()) / 1000;
    const text = new Intl.RelativeTimeFormat(language(), { numeric: "auto" });
    for (const [unit, size] of units)
        if (Math.abs(seconds) >= size)
            return text.format(Math.trunc(seconds / size), unit);
    return text.format(0, "second");
}

/** @param {Date} then */
export const clock = then =>
    new Intl.DateTimeFormat(language(), { dateStyle: "medium", timeStyle: "short" }).format(then);

/** @param {number} n */
export const bytes = n => cockpit.format_bytes(n);
