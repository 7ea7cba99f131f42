# SPDX-License-Identifier: Apache-2.0
#
# For one node: approve and apply the staged updates, and wait until they run. It succeeds if nothing is staged.
# See docs/salt.md.
#
# Written for Salt 2016.11.4 and newer. `success_retcodes`, which would take exit code 3 as a success, came with
# 2019.2.0 (docs.saltproject.io, salt.states.cmd). With `stateful`, which is older, the last line of stdout says whether
# something changed and why, and the exit code whether it worked. A test run (test=True) runs nothing.
#
# image_update:past_held  true: a held node does not fail.
# image_update:lock_wait  how many seconds a node waits for the fleet lock (docs/fleets.md). If another node still
#                         has the lock then, the state succeeds, and its comment names the holder.
# image_update:expect     the approved digests: a mapping of images to a digest or a list of digests. A node with
#                         another offer applies nothing (exit code 4); a node that already runs them has nothing to do.
#                         Without it every staged update is applied.
{%- set expect = salt['pillar.get']('image_update:expect', {}) %}
{%- set expected = [] %}
{%- for image in expect|sort %}
  {%- for digest in ([expect[image]] if expect[image] is string else expect[image]) %}
    {%- do expected.append("--expect '" ~ (image ~ '=' ~ digest)|replace("'", '')|replace('\n', '') ~ "'") %}
  {%- endfor %}
{%- endfor %}
{%- set past_held = salt['pillar.get']('image_update:past_held', False) %}
{%- set lock_wait = salt['pillar.get']('image_update:lock_wait', 600) %}

image-update-agent apply:
  cmd.run:
    # Salt shows the name as the command: the script is in a variable of its environment.
    - name: 'eval "$IMAGE_UPDATE" # image-update-agent apply'
    - env:
      - IMAGE_UPDATE: |
          # Read the hold from the outcome: the status loses it when the agent releases a lock that no pod waits for.
          locked() { case $said in *'"hold": "lock"'*) ;; *) return 1 ;; esac; }
          left={{ lock_wait|int }} waits=no
          while :; do
              said=$(image-update-agent apply --output json{{ ' ' ~ expected|join(' ') if expected }} 2>&1)
              code=$?
              if [ "$code" != 4 ] || ! locked; then break; fi
              if [ "$left" -le 0 ]; then
                  waits=yes
                  break
              fi
              sleep 15
              left=$((left - 15))
          done
          changed=no good=no
          case $code in
          0) end='done' changed=yes ;;
          1) end='failed' changed=yes ;;
          2) end='invalid arguments or configuration' ;;
          3) end='nothing to do' good=yes ;;
          4) end='held' good={{ 'yes' if past_held else 'no' }} ;;
          126 | 127) end='not to be run: is image-update-agent installed here?' ;;
          *) end='ended by something else' ;;
          esac
          if [ "$waits" = yes ]; then end='waits for the fleet lock' good=yes; fi
          # A line of each pod, and the lines of stderr.
          told=$(printf '%s\n' "$said" | sed -n \
              -e 's/^    "podManifest": "\(.*\)",*$/\1/;t keep' -e 's/^    "change": "\(.*\)",*$/\1/;t keep' \
              -e 's/^    "result": "\(.*\)",*$/\1/;t keep' -e 's/^    "reason": "\(.*\)",*$/\1/;t keep' \
              -e '/^  }/{s/.*//;x;s/^ //;s/  */ /g;s/ $//;p;d;}' -e '/^  /d' -e '/^[][]*$/d' -e p -e d \
              -e ':keep' -e 's/\\\(["\\]\)/\1/g' -e 'H;x;s/\n/ /;x')
          # Salt splits this line like a shell, and each word at its equals sign.
          why=$(printf '%s' "$told" | LC_ALL=C tr '\n"\\=' ";'/:" | LC_ALL=C tr -cd '[:print:]')
          printf '%s\n\nchanged=%s comment="%s (%s): %s"\n' "$said" "$changed" "$end" "$code" "$why"
          [ "$good" = yes ] || exit "$code"
    - shell: /bin/sh
    - stateful: True
    # In seconds, for a daemon that hangs. applyTimeout and settle of each pod end an apply long before.
    - timeout: 3600

# Report the new grains to the master, also after a failure: later states run although this one failed. Both forms of
# module.run accept `name`; 2016.11 accepts nothing else.
refresh grains:
  module.run:
    - name: saltutil.refresh_grains
    - order: last
