"""Templates that try to take much, or to reach far; `s` is a short text, `tags` a list."""

from __future__ import annotations

# Lists and tuples of a few objects that would be 2**60 items if they were written down.
DOUBLED = (
    "{% set n = namespace(x=[0], y=[0], t=(0,)) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% set n.t = (n.t, n.t) %}{% endfor %}"
)

ATTACKS = [
    "{{ 'x' * 10000000000 }}",
    "{{ 10000000000 * 'x' }}",
    "{{ [0] * 10000000000 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ 2 ** 1000000 }}",
    "{{ range(10000000000)|list }}",
    "{{ 'x'.center(10000000000) }}",
    "{{ 'x'.ljust(width=10000000000) }}",
    "{% for i in range(99999) %}{{ s }}{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ s.__class__ }}",
    "{{ tags.append(1) }}",
    "{{ tags.clear() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ 1 / 0 }}",
    "{{ s + 1 }}",
    "{{ s() }}",
    # Filters
    "{{ s|center(10000000000) }}",
    "{{ s|indent(10000000000) }}",
    "{{ ('a\\n' * 1000)|indent('x' * 1000000) }}",
    "{{ s|replace('x', 'y' * 500000) }}",
    "{{ range(50000)|join('y' * 500000) }}",
    "{{ range(50000)|map('string')|join('y' * 500000) }}",
    "{{ range(9999)|map('center', 10000000000)|list }}",
    "{{ range(9)|batch(10000000000, 'x')|list }}",
    "{{ range(9)|slice(10000000000)|list }}",
    "{{ 2.5|round(10000000000, 'floor') }}",
    "{{ s|wordwrap(1, wrapstring='y' * 500000) }}",
    "{{ {'a': [1]}|tojson(indent=10000000) }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%*d'|format(1000000000, 1) }}",
    # Methods and operators
    "{{ '%1000000000d' % 1 }}",
    "{{ ('%(a)999999s' * 9999) % {'a': 1} }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "{{ ('{0}' * 9999).format('x' * 500000) }}",
    "{{ ('{0:{w}}' * 999).format(1, w=1000000) }}",
    "{{ '{a:999999}{a:999999}{a:999999}'.format_map({'a': 1}) }}",
    "{{ s.replace('x', 'y' * 500000) }}",
    "{{ ('y' * 500000).join(range(50000)|map('string')|list) }}",
    "{{ ('\\t' * 1000).expandtabs(1000000) }}",
    "{{ s.translate({120: 'y' * 500000}) }}",
    "{{ (5).to_bytes(10000000000) }}",
    # What grows in a loop
    "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='x') %}{% for i in range(99) %}"
    "{% set n.x = n.x.replace('x', 'xx') %}{% endfor %}",
    "{% set n = namespace(x='x') %}{% for i in range(99) %}"
    "{% set n.x = n.x|replace('x', 'xx') %}{% endfor %}",
    "{% set n = namespace(x=[0]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='x') %}{% for i in range(99) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "{% set n = namespace(x=[0]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x }}",
    "{% set n = namespace(x=[0]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x|string|length }}",
    "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}"
    + "a text of some length " * 50
    + "{% endfor %}{% endset %}",
    "{% for a in [1] recursive %}{{ loop(range(99999)) if loop.depth == 1 }}"
    + "a text of some length " * 300
    + "{% endfor %}",
    "{% macro f() %}" + "text " * 1000 + "{% endmacro %}{% set x %}{% for i in range(99999) %}"
    "{{ f() }}{% endfor %}{% endset %}",
    "{{ lipsum(n=1000000) }}",
    # What is short in memory, and endless once it is compared, hashed or written
    DOUBLED + "{{ n.x == n.y }}",
    DOUBLED + "{{ 1 if n.x < n.y }}",
    DOUBLED + "{{ n.x in [n.y] }}",
    DOUBLED + "{{ n.x is eq(n.y) }}",
    DOUBLED + "{{ [n.x, n.y]|unique|list }}",
    DOUBLED + "{{ [n.x, n.y]|sort|length }}",
    DOUBLED + "{{ [n.x, n.y]|map('list')|max|length }}",
    DOUBLED + "{{ [n.x].index(n.y) }}",
    DOUBLED + "{% for a in [1, 2] %}{{ loop.changed(n.x if a == 1 else n.y) }}{% endfor %}",
    DOUBLED + "{{ {n.t: 1}|length }}",
    DOUBLED + "{{ dict([(n.t, 1)])|length }}",
    DOUBLED + "{{ {}.get(n.t) }}",
    DOUBLED + "{{ {}[n.t] }}",
    DOUBLED + "{{ n }}",
    DOUBLED + "{{ n|string|length }}",
    DOUBLED + "{{ {'a': n.x}.values()|string|length }}",
    DOUBLED + "{{ '%s' % n }}",
    DOUBLED + "{{ '{}'.format(n) }}",
    DOUBLED + "{{ n.x|pprint }}",
    # What is kept of a long text
    *(
        "{% set n = namespace(x=[]) %}{% set l = 'a' * 1000000 %}{% for i in range(20000) %}"
        "{% set n.x = n.x + [" + copy + "] %}{% endfor %}"
        for copy in ("l[1:]", "l[::-1]", "l.split('z')", "l.partition('z')", "l|upper", "l|list")
    ),
    # What takes more time than it makes text
    "{{ ('<!-- -->' * 100000)|striptags }}",
    "{{ ('<!-- -->' * 100000)|e|string|striptags }}",
    "{{ (('<!-- -->' * 100000)|safe).striptags() }}",
    "{{ ('http://a ' * 100000)|urlize }}",
    "{{ ('a' * 1000000)|wordwrap(1) }}",
    "{{ ([[0]] * 1000000)|sum(start=[]) }}",
    "{{ ('f' * 1000000)|int(base=16) // 3 }}",
    "{{ ('x' * 1000000)|sort }}",
    "{{ ('x' * 1000000)|groupby('a') }}",
    "{{ ('y' * 500000).join(range(50000)|map('string')) }}",
    "{{ [['a' * 1000000, 'a' * 999999 ~ 'a'] * 200000]|first|sort }}",
    "{{ {'a': 1}|tojson(separators=('x' * 1000, 'y')) }}",
    # Names that Python or Jinja may give a meaning
    "{{ namespace(_x=1) }}",
    "{% set n = namespace() %}{% set n._x = 1 %}",
    "{{ namespace({'__class__': 1}) }}",
    "{{ dict.__class__.__mro__ }}",
    "{{ dict.mro() }}",
    "{{ s|attr('__class__')|string|length }}{{ (s|attr('__class__')).mro }}",
    "{{ [s]|map(attribute='__class__')|first + 1 }}",
    "{{ '{0.__class__}'.format(s) }}",
    "{{ '{0.__class__}'.format_map({'0': s}) }}",
    "{{ range.__class__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ (s.format.__globals__) }}",
    "{% set f = s.format %}{{ f.__self__ }}",
]

ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) if a is in(range(99999)|list) %}{% endfor %}",
    "{% for a in range(999) %}{% for b in range(99999)|select('odd') %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "{% for a in [[1], [2]] recursive %}{{ loop([[1], [2]]) }}{{ loop([[3]]) }}{% endfor %}",
    "{% for a in [1, 2] recursive %}{% if loop.depth < 40 %}{{ loop([1, 2]) }}{% endif %}"
    "{% endfor %}",
    "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
]
