# SPDX-License-Identifier: Apache-2.0
#
# For one node: put the node's own host among the hosts of registries, or take it out. docs/own-host.md tells what that is,
# docs/salt.md how to use this.
#
# image_update:own_host  a mapping of registries to fallback, gate or off: {registry.suse.com: fallback}
#
# Written for Salt 2016.11.4 and newer, as apply.sls. In a test run (test=True) nothing is run. YAML reads `off` as false.
{%- set registries = salt['pillar.get']('image_update:own_host', {}) %}
{%- set on = [] %}
{%- for registry in registries|sort if registries[registry] in ['fallback', 'gate'] %}
  {%- do on.append(registry) %}
{%- endfor %}

{%- if on %}
# Before containerd asks there. Without it containerd would go on to the next host.
image-update-agent-localhost.socket:
  service.running:
    - enable: True
{%- endif %}

{%- for registry in registries|sort %}
{%- set verb = {'fallback': 'enable', 'gate': 'enable --gate'}.get(registries[registry], 'disable') %}
{{ ('own host of ' ~ registry)|json }}:
  cmd.run:
    - name: |
        said=$(image-update-agent localhost {{ verb }} --write -- '{{ registry|replace("'", "") }}' 2>&1)
        code=$?
        changed=no good=no
        case $code in
        0) end='done' changed=yes good=yes ;;
        1) end='failed' ;;
        2) end='not understood: arguments or configuration' ;;
        3) end='nothing to do' good=yes ;;
        4) end='left as it is' ;;
        126 | 127) end='not to be run: is image-update-agent installed here?' ;;
        *) end='ended by something else' ;;
        esac
        # Salt reads this line as a shell's words, and cuts each at its equals sign.
        why=$(printf '%s' "$said" | LC_ALL=C tr '\n"\\=' ";'/:" | LC_ALL=C tr -cd '[:print:]')
        printf '%s\n\nchanged=%s comment="%s (%s): %s"\n' "$said" "$changed" "$end" "$code" "$why"
        [ "$good" = yes ] || exit "$code"
    - shell: /bin/sh
    - stateful: True
    - timeout: 60
{%- else %}
nothing is configured:
  test.succeed_without_changes:
    - name: image_update:own_host names no registry
{%- endfor %}
