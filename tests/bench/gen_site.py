"""A made-up newspaper of N pages of 20-60 KB with about 40 links each, the same on every run.

Page ``i`` links its children ``8i + 1 ... 8i + 8``, so that every page is reached from the first; the rest of
its links favour the front pages, as on a real site, in relative, absolute, scheme-less and fragment forms.
Every sixth page hides behind a query string. The prose is a Markov chain over the Python language reference.
"""

from __future__ import annotations

import html
import json
import pydoc_data.topics as reference
import random
import re
from functools import cached_property
from pathlib import Path

SECTIONS = [
    "world",
    "politics",
    "business",
    "technology",
    "science",
    "health",
    "sports",
    "culture",
    "travel",
    "opinion",
    "education",
    "climate",
]
FIRST_NAMES = ["Ada", "Grace", "Alan", "Linus", "Barbara", "Edsger", "Donald", "Margaret"]
LAST_NAMES = ["Miller", "Novak", "Garcia", "Okafor", "Schmidt", "Tanaka", "Rossi", "Larsen"]
ROBOTS = "User-agent: *\nDisallow: /static/\nDisallow: /search\n"
NAME = "The Synthetic Herald"


def slug(text: str) -> str:
    """Return ``text`` as a path segment."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]


class Prose:
    """An order-2 Markov chain of English words; every sentence comes from the generator given."""

    def __init__(self) -> None:
        raw = " ".join(re.sub(r"\n +", " ", text) for _, text in sorted(reference.topics.items()))
        words = [word for word in re.sub(r"[^A-Za-z,.'\- ]", " ", raw).split() if len(word) < 16]
        self._chain: dict[tuple[str, str], list[str]] = {}
        for first, second, third in zip(words, words[1:], words[2:], strict=False):
            self._chain.setdefault((first, second), []).append(third)
        self._keys = sorted(self._chain)
        self._starts = [key for key in self._keys if key[0][0].isupper() and key[0].isalpha()]

    def sentence(self, rng: random.Random, low: int = 8, high: int = 26) -> str:
        """Return one sentence of ``low`` to ``high`` words."""
        length = rng.randint(low, high)
        first, second = rng.choice(self._starts)
        out = [first, second]
        while len(out) < length:
            following = self._chain.get((first, second))
            if not following:
                first, second = rng.choice(self._keys)
                following = self._chain[(first, second)]
            first, second = second, rng.choice(following)
            out.append(second)
        return " ".join(out).rstrip(",.- ").replace(".", "") + "."


class Herald:
    """The newspaper: ``paths`` are its pages as a crawler should know them, ``page(i)`` is the HTML of one."""

    def __init__(self, base_url: str, pages: int) -> None:
        self.base_url = base_url
        self.host = base_url.split("//", 1)[1]
        self.n = pages
        self._prose = Prose()

    @cached_property
    def titles(self) -> list[str]:
        """The headline of every page."""
        return [self._prose.sentence(random.Random(1000 + i), 6, 11).rstrip(".") for i in range(self.n)]

    @cached_property
    def paths(self) -> list[str]:
        """Path and query of every page; the front page comes first."""
        return [self._path(i) for i in range(self.n)]

    def _path(self, i: int) -> str:
        section = SECTIONS[i % 12]
        if i == 0:
            return "/index.html"
        if i % 6 == 5:
            return f"/view/article?id={i}&section={section}"
        return f"/{section}/{2018 + i % 8}/{1 + i % 12:02d}/{slug(self.titles[i])}-{i}.html"

    def file_of(self, i: int) -> str:
        """Return the path of the file that answers for page ``i``; the server maps queries to it."""
        path = self.paths[i]
        found = re.match(r"/view/article\?id=(\d+)", path)
        return f"/view/{found[1]}.html" if found else path

    def _relative(self, source: str, target: str) -> str:
        source_dir = [part for part in source.split("?")[0].rsplit("/", 1)[0].split("/")[1:] if part]
        target_dir = [part for part in target.split("?")[0].rsplit("/", 1)[0].split("/")[1:] if part]
        rest = target[len("/" + "/".join(target_dir)) :].lstrip("/") if target_dir else target.lstrip("/")
        same = 0
        while same < min(len(source_dir), len(target_dir)) and source_dir[same] == target_dir[same]:
            same += 1
        return "../" * (len(source_dir) - same) + "/".join([*target_dir[same:], rest])

    def _href(self, rng: random.Random, i: int, j: int) -> str:
        path, form = self.paths[j], rng.random()
        if form < 0.40:
            href = path
        elif form < 0.65:
            href = self._relative(self.paths[i], path)
        elif form < 0.90:
            href = self.base_url + path
        else:
            href = f"//{self.host}{path}"
        if rng.random() < 0.15:
            href += rng.choice(["#comments", "#top", "#main-content", f"#c{j}"])
        return html.escape(href)

    def _anchor(self, rng: random.Random, i: int, j: int, text: str | None = None, cls: str = "") -> str:
        attribute = f" class={json.dumps(cls)}" if cls else ""
        return f'<a href="{self._href(rng, i, j)}"{attribute}>{html.escape(text or self.titles[j])}</a>'

    def _popular(self, rng: random.Random, n: int) -> list[int]:
        return [min(self.n - 1, int(self.n * rng.random() ** 1.6)) for _ in range(n)]

    @cached_property
    def _furniture(self) -> tuple[list[str], str]:
        rng = random.Random(7)
        rules = [
            f".{rng.choice(['c', 'm', 'nav', 'art', 'wid', 'btn', 'grid'])}-{k}"
            f"{{display:{rng.choice(['flex', 'block', 'grid'])};"
            f"margin:{rng.randint(0, 40)}px {rng.randint(0, 40)}px;padding:{rng.randint(0, 24)}px;"
            f"color:#{rng.randint(0, 0xFFFFFF):06x};"
            f"font:{rng.randint(11, 32)}px/1.{rng.randint(1, 9)} 'Source Sans Pro',Arial,sans-serif}}"
            for k in range(160)
        ]
        script = "".join(
            f"window.__cfg.mod{k}=function(e,t){{var n=e.getAttribute('data-{k}')||t;"
            f"if(n&&n.length>{k % 7}){{document.querySelectorAll('.m-{k}').forEach(function(a){{"
            f"a.classList.toggle('is-open');a.dataset.ts=Date.now()-{rng.randint(1, 9999)}}})}}return n}};"
            for k in range(60)
        )
        return rules, script

    def page(self, i: int) -> str:
        """Return the HTML of page ``i``."""
        rng = random.Random(99991 * i + 17)
        author = f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
        date = f"{2018 + i % 8}-{1 + i % 12:02d}-{1 + i % 28:02d}"
        return "".join(
            [
                self._head(rng, i, author, date),
                self._masthead(rng, i),
                self._article(rng, i, author, date),
                self._comments(rng, i, date),
                self._sidebar(rng, i),
                self._footer(rng, i),
            ]
        )

    def _head(self, rng: random.Random, i: int, author: str, date: str) -> str:
        rules, script = self._furniture
        title, section = self.titles[i], SECTIONS[i % 12]
        safe, address = html.escape(title), html.escape(self.base_url + self.paths[i])
        about = {
            "@context": "https://schema.org",
            "@type": "NewsArticle",
            "headline": title,
            "datePublished": f"{date}T08:00:00Z",
            "dateModified": f"{date}T11:30:00Z",
            "author": {"@type": "Person", "name": author},
            "publisher": {
                "@type": "Organization",
                "name": NAME,
                "logo": {"@type": "ImageObject", "url": "/static/logo.png"},
            },
            "articleSection": section,
            "mainEntityOfPage": self.base_url + self.paths[i],
        }
        return "".join(
            [
                '<!DOCTYPE html>\n<html lang="en" prefix="og: http://ogp.me/ns#">\n<head>\n<meta charset="utf-8">\n',
                f"<title>{safe} | {NAME}</title>\n",
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
                f'<meta name="description" content="{html.escape(self._prose.sentence(rng, 14, 24))}">\n',
                f'<meta name="author" content="{author}">\n',
                f'<meta name="keywords" content="{section}, {slug(title).replace("-", ", ")}">\n',
                f'<link rel="canonical" href="{address}">\n<meta property="og:title" content="{safe}">\n',
                f'<meta property="og:type" content="article">\n<meta property="og:url" content="{address}">\n',
                f'<meta property="og:site_name" content="{NAME}">\n',
                f'<meta property="article:published_time" content="{date}T08:{i % 60:02d}:00Z">\n',
                f'<meta property="article:section" content="{section}">\n',
                '<meta name="twitter:card" content="summary_large_image">\n',
                '<link rel="stylesheet" href="/static/main.css?v=3">\n<link rel="icon" href="/favicon.ico">\n',
                f'<script type="application/ld+json">{json.dumps(about)}</script>\n',
                "<style>" + "\n".join(rng.sample(rules, rng.randint(20, 110))) + "</style>\n",
                f"<script>window.__cfg={{page:{i},section:'{section}'}};",
                script[: rng.randint(1500, 14000)].rsplit(";window", 1)[0],
                ";</script>\n</head>\n",
            ]
        )

    def _masthead(self, rng: random.Random, i: int) -> str:
        section = SECTIONS[i % 12]
        out = [
            f'<body class="page page-{section} art-{i}">\n<a class="skip" href="#main-content">Skip to content</a>\n',
            f'<header class="site-header"><div class="logo">{self._anchor(rng, i, 0, NAME, "brand")}</div>',
            '<nav class="main-nav" role="navigation"><ul>',
        ]
        for k, name in enumerate(SECTIONS[:8]):
            link = self._anchor(rng, i, k + 1 if k + 1 < self.n else 0, name.title(), "nav-link")
            out.append(f'<li class="nav-item nav-{k}">{link}</li>')
        out.append(
            '</ul></nav><form class="search" action="/search" method="get">'
            '<input type="search" name="q" placeholder="Search"><button type="submit">'
            '<svg width="16" height="16" viewBox="0 0 16 16"><path d="M11.7 10.3a6 6 0 1 0-1.4 1.4l3.3 3.3 '
            '1.4-1.4zM6.5 11a4.5 4.5 0 1 1 0-9 4.5 4.5 0 0 1 0 9z"/></svg></button></form></header>\n'
        )
        if i:
            home = self._anchor(rng, i, 0, "Home")
            parent = self._anchor(rng, i, (i - 1) // 8, section.title())
            out.append(
                f'<nav class="breadcrumb" aria-label="breadcrumb"><ol><li>{home}</li><li>{parent}</li>'
                f'<li aria-current="page">{html.escape(self.titles[i])}</li></ol></nav>\n'
            )
        return "".join(out)

    def _article(self, rng: random.Random, i: int, author: str, date: str) -> str:
        prose, title = self._prose, html.escape(self.titles[i])
        out = [
            '<div class="layout grid-3"><main id="main-content"><article class="post" itemscope '
            f'itemtype="https://schema.org/NewsArticle"><header><h1 itemprop="headline">{title}</h1>'
            f'<p class="standfirst">{html.escape(prose.sentence(rng, 16, 28))}</p><div class="byline">By '
            f'<span class="author" itemprop="author">{author}</span> '
            f'<time datetime="{date}" itemprop="datePublished">{date}</time></div><figure>'
            f'<img src="/static/img/{i}.jpg" alt="{html.escape(prose.sentence(rng, 5, 9))}" width="1200" '
            f'height="675" loading="lazy"><figcaption>{html.escape(prose.sentence(rng, 8, 14))}</figcaption>'
            '</figure></header>\n<div class="article-body" itemprop="articleBody">\n'
        ]
        children = [child for child in range(8 * i + 1, 8 * i + 9) if child < self.n]
        links = children + self._popular(rng, 8)
        wanted, words, p = rng.randint(600, 1200), 0, 0
        while words < wanted:
            text, added = self._paragraph(rng, i, p, links)
            words += added
            p += 1
            out.append(text)
        out.append("</div>\n")
        if links:
            items = "".join(f"<li>{self._anchor(rng, i, j)}</li>" for j in links)
            out.append(f'<section class="more-in"><h3>More on this</h3><ul>{items}</ul></section>\n')
        tags = [
            self._anchor(rng, i, self._popular(rng, 1)[0], text) for text in (SECTIONS[i % 12], "analysis")
        ]
        out.append(
            f'<footer class="tags">Tags: {tags[0]} {tags[1]} <a href="mailto:tips@example.org">Tips</a> '
            '<a href="javascript:void(0)" onclick="share()">Share</a> <a href="https://social.example.org/share?u='
            f'{html.escape(self.paths[i])}" rel="nofollow noopener">Post</a></footer></article>\n'
        )
        return "".join(out)

    def _paragraph(self, rng: random.Random, i: int, p: int, links: list[int]) -> tuple[str, int]:
        prose, out = self._prose, []
        sentences = [html.escape(prose.sentence(rng)) for _ in range(rng.randint(2, 6))]
        if links and rng.random() < 0.95:
            k = rng.randrange(len(sentences))
            target = links.pop(0)
            words = prose.sentence(rng, 3, 5).rstrip(".")
            sentences[k] = f"{sentences[k][:-1]} {self._anchor(rng, i, target, words)}."
            if len(links) > 8 and rng.random() < 0.8:
                target = links.pop(0)
                words = prose.sentence(rng, 3, 6).rstrip(".")
                link = self._anchor(rng, i, target, words)
                sentences.append(f"{link} {html.escape(prose.sentence(rng))}")
        text = " ".join(sentences)
        added = text.count(" ")
        if p % 5 == 3:
            out.append(f'<h2 id="s{p}">{html.escape(prose.sentence(rng, 4, 8)[:-1])}</h2>\n')
        if p % 7 == 5:
            items = "".join(f"<li>{html.escape(prose.sentence(rng, 6, 14))}</li>" for _ in range(4))
            out.append(f"<ul>{items}</ul>\n")
        if p % 9 == 7:
            out.append(f"<blockquote><p>{html.escape(prose.sentence(rng, 14, 30))}</p></blockquote>\n")
        if p % 4 == 2:
            text = text.replace(" the ", " <strong>the</strong> ", 1).replace(" is ", " <em>is</em> ", 1)
        out.append(f"<p>{text}</p>\n")
        if (p + 1) % 6 == 0:
            out.append(
                f'<div class="ad ad-{p + 1}" data-slot="mid-{p + 1}" aria-hidden="true"><script>'
                f'adq.push({{slot:"mid-{p + 1}",w:300,h:250,key:"{rng.getrandbits(64):x}"}});</script></div>\n'
            )
        return "".join(out), added

    def _comments(self, rng: random.Random, i: int, date: str) -> str:
        count = rng.randint(2, 16)
        out = [f'<section id="comments" class="comments"><h3>{count} comments</h3>']
        for c in range(count):
            user = rng.randint(1, 9999)
            words = " ".join(html.escape(self._prose.sentence(rng)) for _ in range(rng.randint(1, 3)))
            out.append(
                f'<div class="comment" id="c{i}-{c}"><div class="comment-meta"><span class="user">user{user}'
                f'</span> <time datetime="{date}">{date}</time></div><div class="comment-text"><p>{words}</p>'
                f'</div><button class="reply" data-id="{c}">Reply</button></div>'
            )
        return "".join([*out, "</section></main>\n"])

    def _sidebar(self, rng: random.Random, i: int) -> str:
        most_read = "".join(
            f'<li class="mr"><span class="n">{k + 1}</span>{self._anchor(rng, i, j)}</li>'
            for k, j in enumerate(self._popular(rng, 8))
        )
        related = "".join(
            f'<div class="card"><img src="/static/thumb/{j}.jpg" alt="" loading="lazy">'
            f"<h5>{self._anchor(rng, i, j)}</h5><p>{html.escape(self._prose.sentence(rng))}</p></div>"
            for j in self._popular(rng, 5)
        )
        return (
            f'<aside class="sidebar"><div class="widget most-read"><h4>Most read</h4><ol>{most_read}</ol></div>'
            f'<div class="widget related">{related}</div></aside></div>\n'
        )

    def _footer(self, rng: random.Random, i: int) -> str:
        links = "".join(
            f"<div>{self._anchor(rng, i, j, None, 'footer-link')}</div>" for j in [*self._popular(rng, 4), 0]
        )
        state = [
            {
                "id": rng.randint(1, 10**6),
                "k": f"{rng.getrandbits(128):x}",
                "v": self._prose.sentence(rng, 4, 9),
            }
            for _ in range(rng.randint(10, 120))
        ]
        return (
            f'<footer class="site-footer"><div class="cols">{links}<div><a href="https://partner.example.com/">'
            'Partner</a> <a href="/static/terms.pdf">Terms (PDF)</a></div></div>'
            f"<p>&copy; 2026 {NAME}. All rights reserved.</p></footer>\n"
            '<script src="/static/app.js" defer></script>\n<script>window.dataLayer=window.dataLayer||[];'
            f"dataLayer.push({json.dumps({'state': state})});</script>\n</body>\n</html>\n"
        )

    def write(self, folder: Path) -> None:
        """Write every page and ``robots.txt`` below ``folder``; about 8 ms a page."""
        for i in range(self.n):
            file = folder / self.file_of(i).lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.page(i), encoding="utf-8")
        (folder / "robots.txt").write_text(ROBOTS, encoding="utf-8")
