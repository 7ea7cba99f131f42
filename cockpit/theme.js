// SPDX-License-Identifier: Apache-2.0
// Cockpit's dark mode: what the shell's menu says, else what the browser prefers.
// @ts-check

const dark = matchMedia("(prefers-color-scheme: dark)");

/** @param {string} [style] */
function apply(style) {
    const wanted = style || localStorage.getItem("shell:style") || "auto";
    const isDark = wanted === "dark" || (wanted === "auto" && dark.matches);
    document.documentElement.classList.toggle("pf-v6-theme-dark", isDark);
}

addEventListener("storage", event => event.key === "shell:style" && apply());
addEventListener("cockpit-style", event => apply(/** @type {CustomEvent} */ (event).detail.style));
dark.addEventListener("change", () => apply());
apply();
