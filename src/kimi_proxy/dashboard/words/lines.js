export default {
  en: {
    original: "Original",
    sent: "As it was sent",
    was_cut: "Cut:",
    cut_lines: { one: "{n} line cut ({start})", other: "{n} lines cut ({start}–{end})" },
    kept_because: "Line {line} stayed:",
    cut_because: "Line {line} went:",
    score: "score {score}",
    choose_a_line: "Choose a line to see why it stayed or went.",
  },
  fr: {
    original: "Original",
    sent: "Tel qu’envoyé",
    was_cut: "Coupée :",
    cut_lines: { one: "{n} ligne coupée ({start})", other: "{n} lignes coupées ({start}–{end})" },
    kept_because: "La ligne {line} est restée :",
    cut_because: "La ligne {line} est partie :",
    score: "score {score}",
    choose_a_line: "Choisissez une ligne pour voir pourquoi elle est restée ou partie.",
  },
};
