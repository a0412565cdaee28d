document.getElementById("app").textContent = "Cenote";
