# SPDX-License-Identifier: Apache-2.0
#
# For one node: enable or disable its local registry (docs/local-registry.md) for registries. See docs/salt.md.
#
# image_update:local_registry  a mapping of registries to fallback, gate or off: {registry.suse.com: fallback}
#
# Written for Salt 2016.11.4 and newer, like apply.sls. A test run (test=True) runs nothing. YAML reads `off` as false.
{%- set registries = salt['pillar.get']('image_update:local_registry', {}) %}
{%- set on = [] %}
{%- for registry in registries|sort if registries[registry] in ['fallback', 'gate'] %}
  {%- do on.append(registry) %}
{%- endfor %}

{%- if on %}
# Start the socket before containerd uses it. Without the socket containerd asks the next host.
image-update-agent-local-registry.socket:
  service.running:
    - enable: True
{%- endif %}

{%- for registry in registries|sort %}
{%- set verb = {'fallback': 'enable', 'gate': 'enable --gate'}.get(registries[registry], 'disable') %}
{{ ('local registry of ' ~ registry)|json }}:
  cmd.run:
    # Salt shows the name as the command: the script is in a variable of its environment.
    - name: 'eval "$IMAGE_UPDATE" # image-update-agent local-registry {{ verb }}'
    - env:
      - IMAGE_UPDATE: |
          said=$(image-update-agent local-registry {{ verb }} --write -- '{{ registry|replace("'", "") }}' 2>&1)
          code=$?
          changed=no good=no
          case $code in
          0) end='done' changed=yes good=yes ;;
          1) end='failed' ;;
          2) end='invalid arguments or configuration' ;;
          3) end='nothing to do' good=yes ;;
          4) end='left as it is' ;;
          126 | 127) end='not to be run: is image-update-agent installed here?' ;;
          *) end='ended by something else' ;;
          esac
          # Salt splits this line like a shell, and each word at its equals sign.
          why=$(printf '%s' "$said" | LC_ALL=C tr '\n"\\=' ";'/:" | LC_ALL=C tr -cd '[:print:]')
          printf '%s\n\nchanged=%s comment="%s (%s): %s"\n' "$said" "$changed" "$end" "$code" "$why"
          [ "$good" = yes ] || exit "$code"
    - shell: /bin/sh
    - stateful: True
    - timeout: 60
{%- else %}
nothing is configured:
  test.succeed_without_changes:
    - name: image_update:local_registry names no registry
{%- endfor %}
