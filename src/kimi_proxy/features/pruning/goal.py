"""French words of the trade, and the English ones that code and logs use for them."""

import math
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np

from kimi_proxy.features.pruning.structure.blocks import Floats, Rows

# A French word, then what it may be in English. Endings are cut off before a word is looked up: `supprimé`,
# `supprimer` and `supprimées` are one.
_WORDS = """
abandonner abort|accéder access|accès access|accepter accept|actif active|actuel current|adresse address
affecter assign|afficher print display show|affichage display print|aide help|ajouter add|ajout add append
alerte alert|allouer allocate|ancien old previous|annuler cancel abort|appel call|appeler call invoke|arbre tree
argument argument|arrêter stop shutdown abort|arrêt stop shutdown|article item|attendre wait await|attendu expected
attente wait pending|attribut attribute|authentifier authenticate auth|authentification authentication auth
autoriser allow authorize|autorisation permission authorization|avertir warn|avertissement warning|barre bar
base base database|bibliothèque library|bloc block|bloquer block lock|boucle loop|bouton button|branche branch
brouillon draft|bruit noise|cache cache|caché hidden|calculer compute|calcul compute|canal channel|caractère character
certificat certificate|chaîne string|champ field|changer change|changement change|charger load|chargement load
charge load|chemin path|chercher search find|chiffrer encrypt|chiffrement encryption|choisir choose select|choix choice
classe class|clavier keyboard|clé key|client client customer|code code|coin corner|colonne column|commande command order
commentaire comment|comparer compare|comparaison compare|compiler compile|compilation compile build|compte account
compter count|compteur counter count|conflit conflict|configurer configure config|configuration configuration config
connecter connect login|connexion connection login|construire build construct|construction build|contenu content
contrainte constraint|contrôle check control|contrôler check|convertir convert|copier copy|copie copy|corps body
correspondre match mismatch|corriger fix correct|couche layer|couleur color|couper cut|coupure cut|courant current
courriel email mail|créer create new|création create|curseur cursor|date date|début start begin|décoder decode
déconnecter disconnect logout|déconnexion disconnect logout|défaut default|défaillance failure|définir define set
défini defined|délai timeout delay|demande request|demander request ask|démarrer start|démarrage start boot
dépasser exceed overflow|dépassement overflow exceed|dépendance dependency|déplacer move|dépôt repository|dernier last
désactiver disable|déverrouiller unlock|différence diff difference|disque disk|document document|donnée data
dossier directory folder|doublon duplicate|droit permission right|durée duration|échapper escape|échec fail failure
échouer fail|échouent fail|échoue fail|écran screen|écraser overwrite|écrire write|écrit write|écriture write
effacer erase clear delete|élément element item|emballer wrap pack|emplacement location|encoder encode
encodage encoding|enregistrer save record register|enregistrement record|ensemble set|entête header|tête header
entier integer|entrée input entry|envelopper wrap|envoyer send|envoi send|erreur error|espace space
essai try attempt trial|étape step|état state status|étiquette label tag|évaluer evaluate|événement event
exécuter run execute|exécution run execution|exiger require|expirer expire|expiré expired|exporter export
extraire extract|faux false wrong|faible low weak|fenêtre window|fermer close|fermeture close|fichier file
fil thread|file queue|filtre filter|filtrer filter|fin end|finir finish end|fixer set|fonction function|force force
formater format|formulaire form|fournir provide|fournisseur provider|fuite leak|fusionner merge|fusion merge
gérer handle manage|gestion handle manage|gestionnaire handler manager|grand large big|groupe group|hacher hash
haché hash|heure time hour|historique history|hôte host|icône icon|identifiant id identifier|ignorer ignore skip
image image|imprimer print|inactif idle inactive|inclure include|inconnu unknown|index index|indice index hint
initialiser init initialize|insérer insert|installer install|installation install|instantané snapshot
interdire forbid|interface interface|interne internal|interrompre interrupt|introuvable found missing|inutile unused
inutilisé unused|invalide invalid|inverse reverse|jeton token|joindre join attach|jour day update|journal log
journaux logs|lancer launch run start|largeur width|lecture read|lent slow|libérer free release|libre free
lien link|ligne line|limite limit|limiter limit|lire read|lisible readable|liste list|longueur length|lu read
manquer miss missing|manquant missing|manque missing|marquer mark|matériel hardware|mauvais bad wrong|mémoire memory
message message|mesurer measure|méthode method|migration migration|mise update|mode mode|modèle model template
modifier change modify|modification change|module module|mot word password|moteur engine|moyenne mean average
navigateur browser|niveau level|noeud node|nom name|nommer name|nombre number|nouveau new|numéro number|objet object
obtenir get|obtenu got actual|occupé busy|option option|ordre order|ouvrir open|ouverture open|ouvert open
page page|paquet package packet|parallèle parallel|paramètre parameter setting|parcourir walk traverse|partage share
passe password pass|passerelle gateway|perdre lose lost|perdu lost|permettre allow|permission permission
pièce attachment|pile stack|plage range|planifier schedule|plantage crash|planter crash|plein full|poids weight size
point point|port port|position position|précédent previous|premier first|prêt ready|prévenir prevent warn
priorité priority|prise socket|prix price|processus process|produit product|profil profile|profondeur depth
protéger protect|protégé protected|publier publish|quantité quantity|quitter quit exit|racine root|rafraîchir refresh
raison reason|rang rank|rapide fast quick|rappel reminder callback|rapport report|récent recent|recevoir receive
réception receive|recherche search find|rechercher search find|reconnexion reconnect|récupérer recover retrieve fetch
redémarrer restart|redirection redirect|rediriger redirect|réduire reduce|référence reference|refuser refuse denied
refusé refused denied|réglage setting|règle rule|rejeter reject|relancer restart retry|remplacer replace
remplir fill|remise discount reset|renommer rename|renvoyer return resend|renvoi return|réparer repair fix
répertoire directory|répéter repeat|répondre reply respond|réponse response answer|requête request query|réseau network
réserver reserve|réservation reserve reservation|résoudre resolve|résultat result|retard delay late|retirer remove
retour return|retourner return|réussir succeed success|rôle role|rompre break|rotation rotation rotate|route route
saisie input|saisir input|sauvegarder save backup|sauvegarde backup save|section section|sécurité security
sélection selection|semaine week|séparer split separate|serveur server|service service|session session|seuil threshold
signal signal|signature signature|signer sign|somme sum checksum|sortie output exit|souris mouse|sous-titre subtitle
stockage storage store|stocker store|suivant next|suivre follow|sujet subject topic|supprimer delete remove
suppression delete remove|surcharge overload override|surveiller watch monitor|synchroniser sync|tableau array table
tâche task job|taille size|tampon buffer|télécharger download|téléchargement download|temps time|tentative attempt try
terminer finish terminate end|test test|texte text|titre title|toucher touch|traduire translate|traduction translation
traiter process handle|traitement process handling|transférer transfer|transaction transaction|tri sort|trier sort
trouver find|type type|unique unique|unité unit|utilisateur user|utiliser use|valeur value|valide valid|valider validate
validation validation|variable variable|vérifier check verify|vérification check|verrou lock|verrouiller lock
version version|vide empty|vider clear flush|vitesse speed|voir view show|vue view|zone zone area
"""
_ENDINGS = (
    *("issements", "issement", "ements", "ement", "ations", "ation", "antes", "ante", "ants", "ant", "aient", "ait"),
    *("ees", "ent", "ee", "es", "er", "ez", "ir", "is", "it", "re", "e", "s", "x"),
)
ROOT_CHARS = 4


def _root(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= ROOT_CHARS:
            return word[: -len(ending)]
    return word


def _plain(word: str) -> str:
    return word.translate(_ACCENTS)


_ACCENTS = str.maketrans("àâäçéèêëîïôöùûü", "aaaceeeeiioouuu")
_ENTRIES = [entry.split() for line in _WORDS.strip().split("\n") for entry in line.split("|")]
_BY_WORD = {_plain(french): tuple(english) for french, *english in _ENTRIES}
_BY_ROOT: dict[str, tuple[str, ...]] = {}
for _french, _english in _BY_WORD.items():
    _BY_ROOT.setdefault(_root(_french), _english)


@lru_cache(maxsize=4096)
def english(word: str) -> tuple[str, ...]:
    """What a French word without its accents may be called in English; nothing if that is not known."""
    singular = word[:-1] if word.endswith(("s", "x")) else word
    return _BY_WORD.get(word) or _BY_WORD.get(singular) or _BY_ROOT.get(_root(word)) or ()


WORD = re.compile(r"[^\W\d]\w*|\d+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|'([^'\n]{2,80})'|«\s*([^»\n]{2,80}?)\s*»")
_PATHLIKE = re.compile(r"[\w.~-]*(?:/[\w.-]+)+|\w+(?:\.\w+)+")

# Lines of minified code are cut here: what stands beyond cannot be judged by its words anyway.
MAX_WORD_CHARS = 80
TRANSLATED = 0.9  # what a word counts that the goal has in French

_ENGLISH = """a an and are as at be been being but by can could did do does doing done for from had has have
how i if in into is it its itself may me might must my no not of off on once only or other our out over own
please same should show so some such tell than that the their them then there these they this those through to
too under until up us very was we were what when where which while who whom why will with would you your also
just now more most any all each about after again before between both during few further here need want find
explain look see give get make add let know use used using via per it's don't doesn't"""
_FRENCH = """le la les un une des du de d l au aux et ou où que qui quoi dont ce cet cette ces son sa ses leur leurs
mon ma mes ton ta tes notre nos votre vos je tu il elle on nous vous ils elles se y en ne pas plus moins est sont
était être avoir a ont fait faire par pour sur sous dans avec sans entre vers chez comme si quand comment pourquoi
quel quelle quels quelles tout tous toute toutes aussi donc mais car ni très bien peut doit faut afin lors trouver
montrer garder expliquer"""


def fold(text: str) -> str:
    """Lower case, without accents: `Échec` and `echec` are one word."""
    return _unaccented(text.lower())


def _unaccented(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


STOP_WORDS = frozenset(fold(w) for w in (_ENGLISH + " " + _FRENCH).split())


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A light English stem of a folded word: plurals, -ed and -ing fall off."""
    if len(word) > 5 and word.endswith("ies"):
        return word[:-3] + "y"
    for suffix in ("ing", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 4 and not word.endswith("ss"):
            return word[: -len(suffix)]
    return word


@lru_cache(maxsize=65_536)
def parts(word: str) -> tuple[str, ...]:
    """The stems that a word of the text stands for; an identifier of several parts stands for itself too."""
    word = _unaccented(word[:MAX_WORD_CHARS])
    pieces = [fold(p) for p in _PART.findall(word)]
    stems = tuple(stem(p) for p in pieces if len(p) > 1)
    if len(pieces) > 1:
        return (fold(word).strip("_"), *stems)
    return stems


@dataclass(frozen=True, slots=True)
class Goal:
    """What a goal asks for: weighted stems, and the strings it quotes exactly."""

    stems: dict[str, float]
    exact: tuple[str, ...]
    # From a French stem to the English ones that stand for the same.
    translated: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def ideas(self) -> list[tuple[str, ...]]:
        """The stems, those that say the same put together."""
        english = {stem for stems in self.translated.values() for stem in stems}
        return [(stem, *self.translated.get(stem, ())) for stem in self.stems if stem not in english]


@lru_cache(maxsize=64)
def read_goal(goal: str) -> Goal:
    goal = goal[:4000]
    stems: dict[str, float] = {}
    exact: list[str] = []
    translated: dict[str, tuple[str, ...]] = {}
    is_english = goal_is_english(goal)
    for word in WORD.findall(goal):
        pieces = parts(word)
        whole = fold(word).strip("_")
        if len(pieces) > 1 or (any(c.isupper() for c in word[1:]) and len(word) > 2):
            exact.append(word)
        for piece in pieces:
            if piece in STOP_WORDS or whole in STOP_WORDS:
                continue
            stems[piece] = 1.0
        if not is_english and len(pieces) == 1 and pieces[0] in stems:
            translated[pieces[0]] = tuple(stem(other) for other in english(whole))
    for others in translated.values():
        for other in others:
            stems.setdefault(other, TRANSLATED)
    for groups in _QUOTED.findall(goal):
        quoted = next((g for g in groups if g), "").strip()
        if 2 < len(quoted) <= 80 and any(c.isalnum() for c in quoted):
            exact.append(quoted)
    exact += [p for p in _PATHLIKE.findall(goal) if len(p) > 3]
    return Goal(stems, tuple(dict.fromkeys(exact))[:40], translated)


@lru_cache(maxsize=64)
def goal_is_english(goal: str) -> bool:
    """Whether a goal reads as English rather than French, by its small words."""
    small = [fold(w) for w in WORD.findall(goal)]
    french = sum(w in _FRENCH_SMALL for w in small)
    english = sum(w in _ENGLISH_SMALL for w in small)
    return english > french or french == 0


_FRENCH_SMALL = frozenset(fold(w) for w in _FRENCH.split()) - {"a", "on", "son", "ton", "sur", "fait", "car", "bien"}
_ENGLISH_SMALL = frozenset(_ENGLISH.split()) - {"a", "on", "an", "or", "me", "it", "don't"}


LINE_CHARS = 2000  # what stands beyond in a line is machine-made and cannot be judged by its words
CHECK_EVERY = 512

_WORD_OR_BREAK = re.compile(rf"{WORD.pattern}|\n")


@dataclass(frozen=True, slots=True)
class Words:
    """For each word its row, and its place in the vocabulary."""

    rows: Rows
    ids: Rows
    vocabulary: Sequence[str]
    line_count: int

    def per_line(self, weights: Floats) -> Floats:
        """What the words of each line weigh together; one weight for each word of the vocabulary."""
        sums: Floats = np.bincount(self.rows, weights[self.ids], self.line_count).astype(np.float64)
        return sums


def read_words(lines: Sequence[str], check: Callable[[], None]) -> Words:
    index = {"\n": 0}
    found: list[int] = []
    for start in range(0, len(lines), CHECK_EVERY):
        check()
        # One search through many lines takes a third of the time of many searches.
        text = "".join(_flat(line) + "\n" for line in lines[start : start + CHECK_EVERY])
        found += [index.setdefault(word, len(index)) for word in _WORD_OR_BREAK.findall(text)]
    ids = np.array(found, dtype=np.int64)
    is_word = ids > 0
    rows = np.cumsum(~is_word, dtype=np.int64)
    return Words(rows[is_word], ids[is_word] - 1, list(index)[1:], len(lines))


def _flat(line: str) -> str:
    """A record may be given as one line though it has several."""
    return line[:LINE_CHARS].replace("\n", " ")


MATCHES_ROOT_CHARS, LONG_ROOT_CHARS = 3, 6

Weights = dict[int, int]  # from a word of the vocabulary to how often it stands for a stem


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows are lines. `counts` has a column for each stem of the goal that the text knows."""

    counts: Floats
    lengths: Floats
    idf: Floats
    exact: Floats
    known: float  # the share of the goal's words that the text knows at all
    stems: Sequence[str]  # of the columns
    words: Words
    alike: Floats  # counts of words that share the goal's roots, the goal's own included; one column for each stem

    def kin(self) -> "Matches":
        """The same with words counted that only share a root with the goal's."""
        return replace(self, counts=self.alike)

    def over(self, starts: Rows, ends: Rows) -> "Spans":
        """The same counts summed over spans of lines, end exclusive."""
        return Spans(_sums(self.counts, starts, ends), _sums(self.lengths[:, None], starts, ends)[:, 0], self.idf)


@dataclass(frozen=True, slots=True)
class Spans:
    counts: Floats
    lengths: Floats
    idf: Floats

    def bm25(self, k1: float = 1.2, b: float = 0.75) -> Floats:
        if not self.counts.size:
            return np.zeros(len(self.lengths))
        mean = float(self.lengths.mean()) or 1.0
        norm = k1 * (1 - b + b * self.lengths / mean)[:, None]
        scores: Floats = (self.counts * (k1 + 1) / (self.counts + norm)) @ self._idf()
        return scores

    def coverage(self) -> Floats:
        """Which share of the goal's weight appears at all."""
        total = float(self.idf.sum())
        if not total:
            return np.zeros(len(self.lengths))
        shares: Floats = (self.counts > 0) @ self.idf / total
        return shares

    def _idf(self) -> Floats:
        """Rarity among these spans, not among single lines."""
        n, found = len(self.lengths), (self.counts > 0).sum(axis=0)
        weights: Floats = np.log(1 + (n - found + 0.5) / (found + 0.5))
        return weights


def find(lines: Sequence[str], goal: Goal, check: Callable[[], None]) -> Matches:
    """Count the goal's stems and exact strings in each line."""
    read = read_words(lines, check)
    stems = list(goal.stems)
    uses, alike = _uses(read.vocabulary, stems)
    known = sorted(uses)
    counts = _per_line(read, [uses[i] for i in known])
    frequency = (counts > 0).sum(axis=0)
    weights = np.array(list(goal.stems.values()))[known]
    idf = weights * np.log(1 + (len(lines) - frequency + 0.5) / (frequency + 0.5))
    return Matches(
        counts,
        np.bincount(read.rows, minlength=len(lines)).astype(np.float64),
        idf,
        _exact(lines, goal.exact, check),
        _known_share(goal, {stems[i] for i in known}),
        [stems[i] for i in known],
        read,
        _per_line(read, [alike[i] for i in sorted(alike)]),
    )


def _known_share(goal: Goal, known: Collection[str]) -> float:
    ideas = goal.ideas()
    return sum(any(stem in known for stem in idea) for idea in ideas) / max(1, len(ideas))


def _uses(vocabulary: Sequence[str], stems: Sequence[str]) -> tuple[dict[int, Weights], dict[int, Weights]]:
    """For each stem that the text knows, the words that stand for it: itself, and itself or a word with its root."""
    column = {stem: i for i, stem in enumerate(stems)}
    roots = _Roots(stems)
    uses: dict[int, Weights] = {}
    alike: dict[int, Weights] = {}
    for i, word in enumerate(vocabulary):
        own = Counter(column[part] for part in parts(word) if part in column)
        akin = Counter(k for part in parts(word) for k in roots[part])
        for k, times in own.items():
            uses.setdefault(k, {})[i] = times
        for k, times in (own | akin).items():
            alike.setdefault(k, {})[i] = times
    return uses, alike


class _Roots(dict[str, tuple[int, ...]]):
    """From a word to the stems that it shares a root with: one begins with the other, or both with six letters."""

    def __init__(self, stems: Sequence[str]) -> None:
        super().__init__()
        self._near: dict[str, list[tuple[int, str]]] = {}
        for i, stem in enumerate(stems):
            if len(stem) > MATCHES_ROOT_CHARS and not stem[0].isdigit():
                self._near.setdefault(stem[:MATCHES_ROOT_CHARS], []).append((i, stem))

    def __missing__(self, word: str) -> tuple[int, ...]:
        near = self._near.get(word[:MATCHES_ROOT_CHARS], ())
        found = tuple(i for i, stem in near if word not in STOP_WORDS and _is_alike(word, stem))
        self[word] = found
        return found


def _is_alike(word: str, stem: str) -> bool:
    return (
        stem.startswith(word)
        or (len(stem) > MATCHES_ROOT_CHARS and word.startswith(stem))
        or word[:LONG_ROOT_CHARS] == stem[:LONG_ROOT_CHARS]
    )


def _per_line(read: Words, uses: Sequence[Weights]) -> Floats:
    """From how often each word stands for each stem to how often each line does."""
    counts = np.zeros((read.line_count, len(uses)), order="F")
    for i, weights in enumerate(uses):
        of_word = np.zeros(len(read.vocabulary))
        of_word[list(weights)] = list(weights.values())
        counts[:, i] = read.per_line(of_word)
    return counts


def _exact(lines: Sequence[str], wanted: Sequence[str], check: Callable[[], None]) -> Floats:
    """How much of what the goal names exactly stands in each line; the rarer, the more it says."""
    scores = np.zeros(len(lines))
    if not wanted or not lines:
        return scores
    text = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    for string in wanted:
        check()
        found = {bisect_right(starts, at) - 1 for at in _positions(text, string)}
        for i in found:
            scores[i] += 1 / math.sqrt(len(found))
    return scores


def _positions(text: str, string: str) -> list[int]:
    found: list[int] = []
    at = text.find(string)
    while at >= 0:
        found.append(at)
        at = text.find(string, at + len(string))
    return found


def _sums(values: Floats, starts: Rows, ends: Rows) -> Floats:
    prefix = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0)])
    sums: Floats = prefix[ends] - prefix[starts]
    return sums
