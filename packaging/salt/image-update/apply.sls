# SPDX-License-Identifier: Apache-2.0
#
# For one node: approve what is staged there, carry it out, and wait until it runs. Nothing staged is no failure.
# docs/salt.md tells how to use it.
#
# Written for Salt 2016.11.4 and newer. `success_retcodes`, which would take exit code 3 as a success, came with
# 2019.2.0 (docs.saltproject.io, salt.states.cmd); `stateful` is older than 2016.11: the last line on stdout says what changed
# and why, and the exit code whether it worked. In a test run (test=True) nothing is run.
#
# image_update:past_held  a node where something speaks against the update is no failure.
# image_update:lock_wait  how many seconds a node may wait for the lock of its fleet (docs/fleets.md), which another
#                         orchestration, say, has another node hold. After them it is no failure either: the comment
#                         names the holder, and the next run goes on.
# image_update:expect     what the person who approves was shown: a mapping of images to a digest, or to a list of them.
#                         A node that offers anything else by now applies nothing (exit code 4); one that runs it
#                         already has nothing to do. Without it all that is staged is applied.
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
    - name: |
        # The outcome names the hold. The status does not for long: a lock that nothing waits for is given back.
        locked() { case $said in *'held: lock: '*) ;; *) return 1 ;; esac; }
        left={{ lock_wait|int }} waits=no
        while :; do
            said=$(image-update-agent apply{{ ' ' ~ expected|join(' ') if expected }} 2>&1)
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
        2) end='not understood: arguments or configuration' ;;
        3) end='nothing to do' good=yes ;;
        4) end='held' good={{ 'yes' if past_held else 'no' }} ;;
        126 | 127) end='not to be run: is image-update-agent installed here?' ;;
        *) end='ended by something else' ;;
        esac
        if [ "$waits" = yes ]; then end='waits for the lock of the fleet' good=yes; fi
        # Salt reads this line as a shell's words, and cuts each at its equals sign.
        why=$(printf '%s' "$said" | LC_ALL=C tr '\n"\\=' ";'/:" | LC_ALL=C tr -cd '[:print:]')
        printf '%s\n\nchanged=%s comment="%s (%s): %s"\n' "$said" "$changed" "$end" "$code" "$why"
        [ "$good" = yes ] || exit "$code"
    - shell: /bin/sh
    - stateful: True
    # Seconds. applyTimeout and settle of each pod end it long before; this is for a daemon that hangs.
    - timeout: 3600

# The grain that the agent has just written reaches the master now, also after a failure: a state that fails does not
# stop those after it. Both spellings of module.run take the name; 2016.11 knows no other.
refresh grains:
  module.run:
    - name: saltutil.refresh_grains
    - order: last
